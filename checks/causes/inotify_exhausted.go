package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// InotifyExhausted is the code of this cause.
const InotifyExhausted = "InotifyExhausted"

func loggedInotifyExhausted(in *Incident) *Finding {
	return in.early(checks.Fair, "The node has run out of inotify instances or watches.", signature.InotifyExhausted)
}

// inotifyOfStart is the most instances and watches that a runtime or a kubelet needs at its start: some for
// configuration, manifests and certificates, and for the cgroups that it watches.
const inotifyOfStart = 16

// inotifyRoom is the number of free instances from which a nearly reached limit does not matter yet: a full node of
// 110 pods starts no more shims than that.
const inotifyRoom = 128

func recogniseInotifyExhausted(f *facts.Facts) *Finding {
	instances, watches := f.Usage.InotifyInstances, f.Usage.InotifyWatches
	i, few := facts.Rank(f.Limits.Node, facts.Used(instances))
	w, fewWatches := facts.Rank(f.Limits.Node, facts.Used(watches))
	if !few && !fewWatches {
		return nil
	}
	i = ifElse(instances.Max >= instances.Current+inotifyRoom, checks.Warning, i)
	var e checks.Evidence
	sysctl, raised := "fs.inotify.max_user_watches", max(1<<20, 2*min(watches.Max, 1<<24))
	addIf(fewWatches, &e.For, "inotify watches of root are near the limit: %s", facts.UsageText(watches))
	if few {
		sysctl, raised = "fs.inotify.max_user_instances", max(8192, 2*min(instances.Max, 1<<20))
		Addf(&e.For, "inotify instances of root are near the limit: %s", facts.UsageText(instances))
	}
	summary := e.For[len(e.For)-1]
	subjects := []checks.Subject{{Kind: "Node", Name: sysctl}}
	n := f.Seen.Inotify.Value
	for _, u := range n.Users {
		if u.UID != 0 {
			continue
		}
		for _, p := range top(u.Top) {
			Addf(&e.For, "%s holds %s", processOwned(f, p.PID, p.Name, p.Owner), units.Count(p.Instances, "instance"))
			subjects = append(subjects, processSubject(f, p.PID, p.Name, p.PodUID))
		}
	}
	logEvidence(f, &e, signature.InotifyExhausted)
	addIf(n.Unread > 0, &e.Missing, "descriptors of %s (not readable)", units.Count(n.Unread, "process"))
	return newFinding(facts.Worse(i, w), checks.Certain, summary, e, subjects...).advise(func(s *Steps, _ string) {
		s.Look("find /proc/[0-9]*/fd -lname anon_inode:inotify 2>/dev/null | cut -d/ -f3 | sort | uniq -c | sort -rn "+
			"| head", "List which processes hold the instances.")
		s.Add(checks.TouchesLimit, textf("sysctl -w %s=%d", sysctl, raised),
			"Raises the limit until the next boot.")
	})
}
