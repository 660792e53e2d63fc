package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// topSubjects is how many objects of a signature a report of the journal names at most.
const topSubjects = 10

// podName finds a pod in a list of the kubelet's: ["web/api-0","web/api-1"].
var podName = lazyregexp.New(`"([^"/ ]+)/([^"/ ]+)"`)

// addRemoved adds the static pods that the kubelet stopped when their folder vanished, and those that it has not begun
// to stop since their manifest is gone, as far as the log names them.
func addRemoved(f *Facts, trouble map[string]PodTrouble) {
	c, dir := Logged(f, signature.StaticPodRemoved), f.Seen.Settings.Value.NoManifests
	if c == nil || c.First == nil || c.Last == nil {
		return
	}
	wanted := map[string]kubelet.Pod{}
	for _, w := range f.Seen.Pods.Value {
		wanted[w.Namespace+"/"+w.Name] = w
	}
	removed := map[string]time.Time{}
	for text, at := range map[string]time.Time{c.Example: *c.First, c.Newest(): *c.Last} {
		for _, m := range podName.FindAllStringSubmatch(text, -1) {
			name := m[1] + "/" + m[2]
			removed[name] = later(removed[name], at)
			if _, has := wanted[name]; dir != "" && !has {
				trouble[name] = PodTrouble{
					Pod: crictl.Pod{Namespace: m[1], Name: m[2]}, Stage: NoManifest, Since: *c.Last, Own: true,
					Words: "the folder of static pods " + dir + " is not there",
				}
			}
		}
	}
	begun := subjectsOf(f, signature.KillBegun)
	for _, c := range containersOf(f) {
		p := PodOf(c.Pod)
		w, at := wanted[p.Namespace+"/"+p.Name], removed[p.Namespace+"/"+p.Name]
		if c.State != crictl.ContainerRunning || w.UID == p.UID || !f.Seen.Pods.OK || c.Created().After(at) ||
			f.Now.Sub(at) < attachTime || len(begun) >= topSubjects ||
			slices.ContainsFunc(begun, func(s journal.SubjectCount) bool { return s.ID == c.ID }) {
			continue
		}
		words := "its manifest is gone, and the kubelet has not begun to stop it, as while a postStart hook runs"
		if w.Phase == "Pending" {
			words += "; the next pod of this name waits for that"
		}
		trouble[p.Namespace+"/"+p.Name] = PodTrouble{Pod: p, Stage: StillRuns, Since: at, Words: words, Own: true}
	}
}

// addTwins adds the static pods that two manifests define, and that do not run or were made anew of late: the kubelet
// takes the one or the other.
func addTwins(f *Facts, trouble map[string]PodTrouble) {
	before := f.Now.Add(-attachTime)
	for _, t := range f.Seen.Settings.Value.Twins {
		pod := crictl.Pod{Namespace: t.Namespace, Name: t.Name}
		i := slices.IndexFunc(f.Seen.Pods.Value, func(w kubelet.Pod) bool {
			return w.Namespace == pod.Namespace && w.Name == pod.Name
		})
		if !f.Seen.Pods.OK || t.Since.After(before) {
			continue
		}
		if i >= 0 {
			w := f.Seen.Pods.Value[i]
			if w.Phase == "Running" && w.Unready == nil && w.Started != nil && w.Started.Before(before) {
				continue
			}
			pod = w.Pod
		}
		trouble[pod.Namespace+"/"+pod.Name] = PodTrouble{
			Pod: pod, Stage: TwoManifests, Since: t.Since, Own: true,
			Words: t.Files[0] + " and " + t.Files[1] + " both define it",
		}
	}
}

// automountWords says what the kubelet waits for where an automount holds up one of its threads; else empty.
func automountWords(f *Facts) string {
	for _, t := range f.Seen.Tasks.Value.Blocked {
		if t.Role == host.RoleKubelet && WaitOf(t) == WaitAutofs {
			return fmt.Sprintf("the kubelet (pid %d) waits in the kernel for the automount of %s, which nobody makes (autofs)",
				t.PID, cmp.Or(t.Path, "a path"))
		}
	}
	return ""
}

// stalledPull says since when the runtime has received nothing of a part of an image; empty where no pull stands still.
func stalledPull(f *Facts) string {
	for _, p := range f.Seen.Pulls.Value {
		if f.Now.Sub(p.Last) >= troubleAge {
			return fmt.Sprintf("the runtime pulls an image, and has received nothing of a part of it %s (%s so far)",
				SinceText(f, p.Last), units.Size(p.Bytes))
		}
	}
	return ""
}

// dropLoneTimeouts drops pods of one workload that do not answer a connection: it may take none. Several workloads have
// only the way to them in common.
func dropLoneTimeouts(f *Facts, trouble map[string]PodTrouble) {
	workloads := map[crictl.Owner]bool{}
	for name, t := range trouble {
		if t.Stage == Unreachable {
			workloads[cmp.Or(WorkloadOf(f, t.Pod.UID), crictl.Owner{Kind: "Pod", Name: name})] = true
		}
	}
	if len(workloads) < 2 {
		maps.DeleteFunc(trouble, func(_ string, t PodTrouble) bool {
			return t.Stage == Unreachable && strings.Contains(t.Words, "i/o timeout")
		})
	}
}

// NoExec returns the mount that holds the volumes of pods, and from which no program may be started, where the error of
// a container is that its program was refused; else empty.
func NoExec(f *Facts, words string) string {
	if !Says(words, "permission denied") || !ofNode.MatchString(words) {
		return ""
	}
	return f.Seen.Mounts.Value.NoExec
}

var (
	// pullRefused finds a pull that is the pod's own fault: the registry has no such image, or its secret does not open
	// it. Others fail by the network, the registry or the node's disk.
	pullRefused = lazyregexp.New(`(?i)not ?found|unauthorized|forbidden|authorization failed|insufficient_scope` +
		`|access.*denied|manifest unknown|invalid reference|no match|unexpected status.*: 40[134]`)
	// pullWords is what ofWorkload finds in it.
	pullWords = lazyregexp.New(`ImagePullBackOff|Back-off pulling|ErrImagePull|context canceled|code = Canceled`)
)

// ofOthers returns the text of an error without the words that would make it the pod's own, where it is not: the
// program is of the node's sandbox image, which is all that runs before a sandbox is ready, or of the node itself, or
// the node forbids that it is started; or a pull fails.
func ofOthers(f *Facts, e podError, ready bool) string {
	text := e.text
	if !ready || strings.Contains(text, "CreatePodSandbox") || e.code == signature.MountFailed || NoExec(f, text) != "" {
		text = ofNode.ReplaceAllString(text, "")
	}
	if e.code == signature.ImagePullFailed && !pullRefused.MatchString(text) {
		// A runtime cancels a pull that makes no progress (image_pull_progress_timeout of containerd).
		text = pullWords.ReplaceAllString(text, "")
	}
	return text
}

// FIFOs returns the FIFOs that daemons of the node wait to open, each once, and those in no pod's log folder first. A
// thread that opened the log of a pod which is gone may wait for ever, and holds up nothing.
func FIFOs(f *Facts) (list []host.FIFOWait) {
	pods, _ := listedPods(f)
	for _, w := range f.Seen.Tasks.Value.FIFOs {
		same := func(o host.FIFOWait) bool { return o.PID == w.PID && o.Path == w.Path }
		namespace, name, _ := PodOfLog(w.Path)
		_, listed := pods[namespace+"/"+name]
		if w.PID > 0 && w.Path != "" && w.Role != host.RoleOCI && !slices.ContainsFunc(list, same) &&
			(name == "" || listed || !f.Calls.BothLists) {
			list = append(list, w)
		}
	}
	slices.SortStableFunc(list, func(a, b host.FIFOWait) int {
		_, one, _ := PodOfLog(a.Path)
		_, other, _ := PodOfLog(b.Path)
		return first(one == "", other == "")
	})
	return list
}
