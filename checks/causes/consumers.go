package causes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

// A holder is somebody who has a part of what is short: a control group, a process, or the processes of one name.
type consumer struct {
	name    string
	brief   string // what it has, for a summary
	line    string // the same with its numbers, as evidence
	share   float64
	subject checks.Subject
	owner   host.Owner
	show    checks.NextStep // what shows it; no command where none is safe
}

// groupHolder describes a control group.
func groupHolder(f *facts.Facts, path string, o host.Owner) consumer {
	return consumer{name: cmp.Or(facts.OwnerLabel(f, o), facts.Clean(path)), owner: o, subject: groupSubject(f, path, o)}
}

// groupSubject names a control group as a culprit: the unit, or the group with its pod.
func groupSubject(f *facts.Facts, path string, o host.Owner) checks.Subject {
	if o.Unit != "" {
		return checks.Subject{Kind: "Unit", Name: facts.Clean(o.Unit)}
	}
	return facts.InPod(f, checks.Subject{Kind: "Cgroup", ID: facts.Clean(o.ObjectID), Name: facts.Clean(path)}, o.PodUID)
}

// processHolder describes a process.
func processHolder(f *facts.Facts, pid int, name string, o host.Owner) consumer {
	return consumer{
		name: fmt.Sprintf("%s (pid %d)%s", facts.Clean(name), pid, facts.OwnerSuffix(f, o)), owner: o,
		subject: facts.InPod(f, checks.Subject{Kind: "Process", ID: fmt.Sprint(pid), Name: facts.Clean(name)}, o.PodUID),
	}
}

// safeDir reports whether the folder of a control group may stand in a command, in single quotes.
func safeDir(dir string) bool { return safeCgroup.MatchString(dir) && !strings.Contains(dir, "..") }

// hasMuch reports whether a holder is a culprit.
func (h consumer) hasMuch() bool { return h.share >= facts.MuchHeld }

// worthNaming keeps the pods that have some, and of all others who has much. Those who have much come first, groups before the
// processes in them.
func worthNaming(all []consumer) []consumer {
	all = slices.DeleteFunc(all, func(h consumer) bool {
		return !h.hasMuch() && (h.share < facts.SomeHeld || h.subject.Kind == "Process" || h.owner.PodUID == "")
	})
	slices.SortStableFunc(all, func(a, b consumer) int {
		switch {
		case a.hasMuch() == b.hasMuch():
			return 0
		case a.hasMuch():
			return -1
		}
		return 1
	})
	return all
}

// addHolderLines adds what each has; and, where all of the node was looked at, that nobody has much.
func addHolderLines(f *facts.Facts, e *checks.Evidence, holders []consumer, everywhere bool, of string) {
	for _, h := range holders {
		Addf(&e.For, "%s", h.line)
	}
	if everywhere && f.Seen.Holders.OK && OfCulprit(holders) == "" {
		Addf(&e.For, "no pod, unit or process has a tenth of %s", of)
	}
}

// OfCulprit ends a summary with who has much; nothing where nobody has.
func OfCulprit(holders []consumer) string {
	if len(holders) == 0 || !holders[0].hasMuch() {
		return ""
	}
	return "; " + holders[0].brief
}

// blame names who has a part of what is short: as the subject, where that is the node or a group of many and somebody has much, and
// beside it.
func (c *Finding) blame(holders []consumer) {
	for i, h := range holders {
		many := c.Subject.Kind == "Node" || c.Subject.Kind == "Cgroup" && c.Subject.ID == "" && c.Subject.PodUID == ""
		switch {
		case i == 0 && many && h.hasMuch():
			if c.Subject.Kind == "Cgroup" { // whose limit it is
				c.Related = slices.Insert(c.Related, 0, *c.Subject)
			}
			c.Subject = &h.subject
		case len(c.Related) < facts.MaxRelated:
			c.Related = append(c.Related, h.subject)
		}
	}
}

// shown reports whether there is a command that shows one of the holders.
func shown(holders []consumer) bool {
	return slices.ContainsFunc(holders, func(h consumer) bool { return h.show.Command != "" })
}

// addHolders adds what shows each of the first holders, and what ends one that has much. Replaced says of a pod what comes after it.
func addHolders(f *facts.Facts, s *Steps, holders []consumer, replaced string) {
	for _, h := range holders[:min(len(holders), facts.MostNamed)] {
		if h.show.Command != "" {
			s.Add(checks.TouchesNothing, h.show.Command, h.show.Why)
		}
		if !h.hasMuch() {
			continue
		}
		switch unit := strings.TrimSpace(h.owner.Unit); {
		case h.owner.PodUID != "":
			addEndOfPod(f, s, h.owner.PodUID, replaced)
		case !facts.Safe(unit):
		case strings.HasPrefix(unit, "session-") && strings.HasSuffix(unit, ".scope"):
			s.Add(checks.TouchesProcess, "systemctl kill --signal=SIGKILL "+unit, "Ends all that was started in this login, and nothing else.")
		default:
			s.Add(checks.TouchesNothing, "systemctl status --no-pager "+unit, "What is it, since when does it run, and does it grow? A restart of it is its owner's to decide.")
		}
	}
}

// addEndOfPod adds what ends a pod. Where the lists do not hold its name, its folder of logs has it.
func addEndOfPod(f *facts.Facts, s *Steps, uid, replaced string) {
	logs := cmp.Or(f.Seen.Settings.Value.PodLogsDir, "/var/log/pods")
	switch pod := facts.OwnedBy(f, host.Owner{PodUID: uid}); {
	case pod.Pod == "" && facts.Safe(uid) && facts.SafePath.MatchString(logs):
		s.Add(checks.TouchesNothing, fmt.Sprintf("ls -d %s/*_%s", logs, uid), "Which pod is it? The runtime's lists do not say; the folder of its logs is called after namespace, name and UID.")
	case facts.IsStaticPod(f, uid):
		s.Add(checks.TouchesNothing, "ls -l /etc/kubernetes/manifests", "A static pod: kubectl delete does nothing to it. It ends when its manifest leaves the kubelet's folder, usually this one.")
	default:
		addDeletePodByUID(f, s, uid, replaced)
	}
}
