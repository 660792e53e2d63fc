package checks

import (
	"fmt"
	"strconv"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func inotifyExhausted() Definition {
	return Definition{
		Code:  codeInotifyExhausted,
		Title: "root has no inotify instances or watches left",
		Means: "fs.inotify.max_user_instances counts for each user, and all of root's processes on the node share it, those in containers too (a user namespace has its own). The kernel's default is 128. On cgroup v2 each containerd shim " +
			"takes one to hear of its cgroup's end, so a node with a hundred pods and a few log shippers is at the limit.\n\n" +
			"What fails then is whoever asks next: \"failed to create fsnotify watcher: too many open files\". containerd starts without its CRI plugin (RuntimeUnsupported), the kubelet does not start, kubectl logs -f ends, " +
			"a shim does not hear that its container ended. Watches that are used up fail with \"no space left on device\", which sends people to df.",
		Confirm: []string{
			"sysctl fs.inotify.max_user_instances fs.inotify.max_user_watches",
			"find /proc/[0-9]*/fd -lname anon_inode:inotify 2>/dev/null | cut -d/ -f3 | sort | uniq -c | sort -rn | head: instances by process.",
			"tail -f of any file as root: \"inotify resources exhausted\" says it at once.",
		},
		Fix: []string{
			"Raise it now: sysctl -w fs.inotify.max_user_instances=8192. It takes effect at once; nothing restarts.",
			"Put it into /etc/sysctl.d, so that it outlives the next boot.",
			"A process with hundreds of instances leaks: its owner's matter.",
			"What failed to start meanwhile is started again by systemd; a runtime without its CRI plugin needs a restart.",
		},
		Mistaken: "FilesExhausted: the same words; few descriptors are open here. DiskFull: \"no space left on device\" of a watch has nothing to do with a disk.",
		Sources: []string{
			"inotify(7): /proc interfaces; kernel: fs/notify/inotify/inotify_user.c (128 instances)",
			"containerd/containerd#10468, #10309 (one for each shim), kubernetes/kubernetes#58081, #37348, #64614, #7815",
		},
		RootOf:    []string{codeRuntimeDown, codeRuntimeUnsupported, codeKubeletDown, codeKubeletCrashLooping},
		recognise: recogniseInotifyExhausted,
	}
}

// inotifyOfStart is how many instances and watches a runtime or a kubelet wants at its start, at most: some for configuration, manifests and
// certificates, and for the cgroups that it watches.
const inotifyOfStart = 16

// inotifyExhaustedExplains reports whether there are next to none left: what runs already is not touched by it, what starts is.
func inotifyExhaustedExplains(f *Facts, _ string) bool {
	instances, watches := f.inotifyOfRoot()
	short := func(u host.Usage) bool { return u.Max > 0 && u.Current+inotifyOfStart > u.Max }
	return short(instances) || short(watches)
}

// inotifyOfRoot is what root's processes hold of the two limits.
func (f *Facts) inotifyOfRoot() (host.Usage, host.Usage) {
	n := f.seen().Inotify.Value
	for _, u := range n.Users {
		if u.UID == 0 {
			return host.Usage{Current: uint64(max(u.Instances, 0)), Max: n.MaxInstances}, host.Usage{Current: uint64(max(u.Watches, 0)), Max: n.MaxWatches}
		}
	}
	return host.Usage{Max: n.MaxInstances}, host.Usage{Max: n.MaxWatches}
}

// inotifyRoom is how many instances must be left for a limit that is nearly reached not to matter yet: a full node of 110
// pods starts no more shims than that.
const inotifyRoom = 128

func recogniseInotifyExhausted(f *Facts) *Cause {
	l := f.nodeLimits()
	instances, watches := f.inotifyOfRoot()
	i, few := l.rank(used(instances))
	w, fewWatches := l.rank(used(watches))
	if !few && !fewWatches {
		return nil
	}
	if instances.Max >= instances.Current+inotifyRoom {
		i = Warning
	}
	var e Evidence
	summary, sysctl, raised := "", "", uint64(0)
	if fewWatches {
		addf(&e.For, "watches of root: %s", usage(watches))
		summary, sysctl, raised = "root has nearly all inotify watches that it may: "+usage(watches), "fs.inotify.max_user_watches", max(1<<20, 2*min(watches.Max, 1<<24))
	}
	if few {
		addf(&e.For, "instances of root: %s", usage(instances))
		summary, sysctl, raised = "root has nearly all inotify instances that it may: "+usage(instances), "fs.inotify.max_user_instances", max(8192, 2*min(instances.Max, 1<<20))
	}
	n := f.seen().Inotify.Value
	var subjects []Subject
	for _, u := range n.Users {
		if u.UID != 0 {
			continue
		}
		for _, p := range u.Top[:min(len(u.Top), topHeaps)] {
			addf(&e.For, "%s (pid %d)%s holds %s", clean(p.Name), p.PID, f.of(p.Owner), units.Count(p.Instances, "instance"))
			subjects = append(subjects, f.inPod(Subject{Kind: "Process", ID: strconv.Itoa(p.PID), Name: clean(p.Name)}, p.PodUID))
		}
	}
	f.heard(&e, signature.InotifyExhausted)
	if n.Unread > 0 {
		addf(&e.Missing, "instances of %s whose descriptors could not be read: there may be more than counted", verb(n.Unread, "1 process", units.Number(n.Unread)+" processes"))
	}
	f.seen().Inotify.missing(&e, "inotify of all processes")
	c := newCause(codeInotifyExhausted, worse(i, w), Certain, summary, e)
	c.Subject, c.Related = &Subject{Kind: "Node", Name: sysctl}, subjects
	var s steps
	s.add(TouchesNothing, "find /proc/[0-9]*/fd -lname anon_inode:inotify 2>/dev/null | cut -d/ -f3 | sort | uniq -c | sort -rn | head", "Which processes hold the instances?")
	s.add(TouchesScheduler, fmt.Sprintf("sysctl -w %s=%d", sysctl, raised), "Raises the limit at once, until the next boot. It takes memory only for what is used. Then put it into /etc/sysctl.d.")
	c.NextSteps = s.done()
	return c
}
