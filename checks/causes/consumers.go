package causes

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// A consumer uses a share of a scarce resource: a control group, a process, or the processes of one name.
type consumer struct {
	text    string // who has how much of it
	share   float64
	subject checks.Subject
	owner   host.Owner
	show    string // a command that shows it; empty where none is safe
}

// groupConsumer describes a control group; show is a command for its folder.
func groupConsumer(f *facts.Facts, path, dir string, o host.Owner, share float64, has, show string) consumer {
	name := cmp.Or(facts.OwnerLabel(f, o), facts.Clean(path))
	return consumer{
		text: name + " " + has, share: share, owner: o, subject: groupSubject(f, path, o),
		show: ifElse(safeDir(dir), textf(show, dir), ""),
	}
}

// processConsumer describes a process; show is a command for its pid.
func processConsumer(f *facts.Facts, pid int, name string, o host.Owner, share float64, has, show string) consumer {
	return consumer{
		text: processOwned(f, pid, name, o) + " " + has, share: share, owner: o,
		subject: processSubject(f, pid, name, o.PodUID), show: textf(show, pid),
	}
}

// groupSubject names a control group as a culprit: the unit, or the group with its pod.
func groupSubject(f *facts.Facts, path string, o host.Owner) checks.Subject {
	if o.Unit != "" {
		return checks.Subject{Kind: "Unit", Name: facts.Clean(o.Unit)}
	}
	group := checks.Subject{Kind: "Cgroup", ID: facts.Clean(o.ObjectID), Name: facts.Clean(path)}
	return facts.InPod(f, group, o.PodUID)
}

// ofNode names a part of the node as a culprit.
func ofNode(part string) checks.Subject { return checks.Subject{Kind: "Node", Name: part} }

// processOwned names a process and its owner: java (pid 7011) of web/checkout-1 (app).
func processOwned(f *facts.Facts, pid int, name string, o host.Owner) string {
	return textf("%s (pid %d)%s", facts.Clean(name), pid, facts.OwnerSuffix(f, o))
}

// processSubject names a process as a culprit, in its pod.
func processSubject(f *facts.Facts, pid int, name, podUID string) checks.Subject {
	return facts.InPod(f, checks.Subject{Kind: "Process", ID: strconv.Itoa(pid), Name: facts.Clean(name)}, podUID)
}

// andMore returns the end of a summary that counts the others; empty for none.
func andMore(n int, noun string) string {
	return ifElse(n > 0, "; "+units.Count(n, noun)+" more", "")
}

// firstOf names the first of some things, and counts the others; empty for none.
func firstOf[T any](all []T, name func(T) string, noun string) string {
	var names []string
	for _, x := range top(all) {
		names = append(names, name(x))
	}
	return units.List(names) + andMore(len(all)-len(names), noun)
}

// safeDir reports whether the folder of a control group may stand in a command, in single quotes.
func safeDir(dir string) bool { return safeCgroup.MatchString(dir) && !strings.Contains(dir, "..") }

// hasMuch reports whether a consumer is a culprit.
func (h consumer) hasMuch() bool { return h.share >= facts.MuchHeld }

// worthNaming keeps the pods that have some, and of all others who has much. Those who have much come first, groups
// before the processes in them.
func worthNaming(all []consumer) []consumer {
	var much, some []consumer
	for _, h := range all {
		if h.hasMuch() {
			much = append(much, h)
		} else if h.share >= facts.SomeHeld && h.subject.Kind != "Process" && h.owner.PodUID != "" {
			some = append(some, h)
		}
	}
	return append(much, some...)
}

// addConsumed adds each consumer's share.
func addConsumed(e *checks.Evidence, all []consumer) {
	for _, h := range all {
		e.For = append(e.For, h.text)
	}
}

// ofCulprit returns the end of a summary that names the largest consumer; empty if none has much.
func ofCulprit(all []consumer) string {
	if len(all) == 0 || !all[0].hasMuch() {
		return ""
	}
	return "; " + all[0].text
}

// blame names who has a part of what is short: as the subject, where that is the node or a group of many and somebody
// has much, and beside it.
func (c *Finding) blame(all []consumer) *Finding {
	for i, h := range all {
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
	return c
}

// shown reports whether there is a command that shows one of the consumers.
func shown(all []consumer) bool {
	return slices.ContainsFunc(all, func(h consumer) bool { return h.show != "" })
}

// addConsumers adds what shows each of the first consumers, and what ends one that has much. replaced is what comes
// after a pod that is ended.
func addConsumers(f *facts.Facts, s *Steps, all []consumer, replaced string) {
	for _, h := range top(all) {
		s.lookIf(h.show != "", h.show, "Check what it consists of; run it twice to see if it grows.")
		unit := strings.TrimSpace(h.owner.Unit)
		switch pod := podOf(f, h.owner.PodUID); {
		case !h.hasMuch():
		case pod.Name != "":
			addDeletePod(f, s, pod, replaced)
		case facts.Safe(pod.UID): // the lists do not hold it
			s.Look("ls -d /var/log/pods/*_"+pod.UID, "Find the pod: the folder has namespace, name and UID.")
		case facts.Safe(unit) && strings.HasPrefix(unit, "session-") && strings.HasSuffix(unit, ".scope"):
			s.Add(checks.TouchesProcess, "systemctl kill --signal=SIGKILL "+unit,
				"Ends everything that this login started.")
		case facts.Safe(unit):
			s.Look("systemctl status --no-pager "+unit, "Check what the unit is; ask its owner before a restart.")
		}
	}
}
