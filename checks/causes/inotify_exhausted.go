package causes

import (
	"fmt"
	"strconv"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// InotifyExhausted is the code of this cause.
const InotifyExhausted = "InotifyExhausted"

var inotifyExhausted = Definition{
	Code:      InotifyExhausted,
	Claims:    []string{"host.inotify"},
	Recognise: recogniseInotifyExhausted,
	FromLog: fromRecords(hostTier, 0.55, "The node has run out of inotify instances or watches.",
		signature.InotifyExhausted),
}

// inotifyOfStart is how many instances and watches a runtime or a kubelet wants at its start, at most: some for
// configuration, manifests and certificates, and for the cgroups that it watches.
const inotifyOfStart = 16

// inotifyRoom is how many instances must be left for a limit that is nearly reached not to matter yet: a full node of
// 110 pods starts no more shims than that.
const inotifyRoom = 128

func recogniseInotifyExhausted(f *facts.Facts) *Finding {
	l := f.Limits.Node
	instances, watches := f.Usage.InotifyInstances, f.Usage.InotifyWatches
	i, few := facts.Rank(l, facts.Used(instances))
	w, fewWatches := facts.Rank(l, facts.Used(watches))
	if !few && !fewWatches {
		return nil
	}
	if instances.Max >= instances.Current+inotifyRoom {
		i = checks.Warning
	}
	var e checks.Evidence
	summary, sysctl, raised := "", "", uint64(0)
	if fewWatches {
		Addf(&e.For, "watches of root: %s", facts.UsageText(watches))
		summary, sysctl, raised = "root has nearly all inotify watches that it may: "+facts.UsageText(watches), "fs.inotify.max_user_watches", max(1<<20, 2*min(watches.Max, 1<<24))
	}
	if few {
		Addf(&e.For, "instances of root: %s", facts.UsageText(instances))
		summary, sysctl, raised = "root has nearly all inotify instances that it may: "+facts.UsageText(instances), "fs.inotify.max_user_instances", max(8192, 2*min(instances.Max, 1<<20))
	}
	n := f.Seen.Inotify.Value
	var subjects []checks.Subject
	for _, u := range n.Users {
		if u.UID != 0 {
			continue
		}
		for _, p := range u.Top[:min(len(u.Top), facts.MostNamed)] {
			Addf(&e.For, "%s (pid %d)%s holds %s", facts.Clean(p.Name), p.PID, facts.OwnerSuffix(f, p.Owner),
				units.Count(p.Instances, "instance"))
			subjects = append(subjects, facts.InPod(f, checks.Subject{
				Kind: "Process", ID: strconv.Itoa(p.PID),
				Name: facts.Clean(p.Name),
			}, p.PodUID))
		}
	}
	logEvidence(f, &e, signature.InotifyExhausted)
	if n.Unread > 0 {
		Addf(&e.Missing, "instances of %s whose descriptors could not be read: there may be more than counted",
			units.Plural(n.Unread, "1 process", units.Number(n.Unread)+" processes"))
	}
	missing(f.Seen.Inotify, &e, "inotify of all processes")
	c := newFinding(facts.Worse(i, w), checks.Certain, summary, e)
	c.Subject, c.Related = &checks.Subject{Kind: "Node", Name: sysctl}, subjects
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		s.Add(checks.TouchesNothing,
			"find /proc/[0-9]*/fd -lname anon_inode:inotify 2>/dev/null | cut -d/ -f3 | sort | uniq -c | sort -rn "+
				"| head", "Which processes hold the instances?")
		s.Add(checks.TouchesScheduler, fmt.Sprintf("sysctl -w %s=%d", sysctl, raised),
			"Raises the limit at once, until the next boot. It takes memory only for what is used. Then put it "+
				"into /etc/sysctl.d.")
		return s.Done()
	}
	return c
}
