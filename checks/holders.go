package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
)

const (
	// muchHeld is the share of all memory, or of all processes, from which who has it is a culprit. Memory is short when less than a
	// tenth is available, and processes are when a fifth or a tenth of the limit is left: giving back as much could end it alone.
	muchHeld = 0.1
	// someHeld is the share from which a pod is named beside others. On a full node of a hundred like pods each has as much.
	someHeld = 0.01
)

// A holder is somebody who has a part of what is short: a control group, a process, or the processes of one name.
type holder struct {
	name    string
	brief   string // what it has, for a summary
	line    string // the same with its numbers, as evidence
	share   float64
	subject Subject
	owner   host.Owner
	show    NextStep // what shows it; no command where none is safe
}

// groupHolder describes a control group.
func (f *Facts) groupHolder(path string, o host.Owner) holder {
	return holder{name: or(f.ownerLabel(o), clean(path)), owner: o, subject: f.groupSubject(path, o)}
}

// groupSubject names a control group as a culprit: the unit, or the group with its pod.
func (f *Facts) groupSubject(path string, o host.Owner) Subject {
	if o.Unit != "" {
		return Subject{Kind: "Unit", Name: clean(o.Unit)}
	}
	return f.inPod(Subject{Kind: "Cgroup", ID: clean(o.ObjectID), Name: clean(path)}, o.PodUID)
}

// processHolder describes a process.
func (f *Facts) processHolder(pid int, name string, o host.Owner) holder {
	return holder{
		name: fmt.Sprintf("%s (pid %d)%s", clean(name), pid, f.of(o)), owner: o,
		subject: f.inPod(Subject{Kind: "Process", ID: fmt.Sprint(pid), Name: clean(name)}, o.PodUID),
	}
}

// safeDir reports whether the folder of a control group may stand in a command, in single quotes.
func safeDir(dir string) bool { return safeCgroup.MatchString(dir) && !strings.Contains(dir, "..") }

// hasMuch reports whether a holder is a culprit.
func (h holder) hasMuch() bool { return h.share >= muchHeld }

// worthNaming keeps the pods that have some, and of all others who has much. Those who have much come first, groups before the
// processes in them.
func worthNaming(all []holder) []holder {
	all = slices.DeleteFunc(all, func(h holder) bool {
		return !h.hasMuch() && (h.share < someHeld || h.subject.Kind == "Process" || h.owner.PodUID == "")
	})
	slices.SortStableFunc(all, func(a, b holder) int {
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
func (f *Facts) addHolderLines(e *Evidence, holders []holder, everywhere bool, of string) {
	for _, h := range holders {
		addf(&e.For, "%s", h.line)
	}
	if everywhere && f.seen().Holders.OK && ofCulprit(holders) == "" {
		addf(&e.For, "no pod, unit or process has a tenth of %s", of)
	}
}

// ofCulprit ends a summary with who has much; nothing where nobody has.
func ofCulprit(holders []holder) string {
	if len(holders) == 0 || !holders[0].hasMuch() {
		return ""
	}
	return "; " + holders[0].brief
}

// blame names who has a part of what is short: as the subject, where that is the node or a group of many and somebody has much, and
// beside it.
func (c *Cause) blame(holders []holder) {
	for i, h := range holders {
		many := c.Subject.Kind == "Node" || c.Subject.Kind == "Cgroup" && c.Subject.ID == "" && c.Subject.PodUID == ""
		switch {
		case i == 0 && many && h.hasMuch():
			if c.Subject.Kind == "Cgroup" { // whose limit it is
				c.Related = slices.Insert(c.Related, 0, *c.Subject)
			}
			c.Subject = &h.subject
		case len(c.Related) < maxRelated:
			c.Related = append(c.Related, h.subject)
		}
	}
}

// shown reports whether there is a command that shows one of the holders.
func shown(holders []holder) bool {
	return slices.ContainsFunc(holders, func(h holder) bool { return h.show.Command != "" })
}

// addHolders adds what shows each of the first holders, and what ends one that has much. Replaced says of a pod what comes after it.
func (f *Facts) addHolders(s *steps, holders []holder, replaced string) {
	for _, h := range holders[:min(len(holders), topHeaps)] {
		if h.show.Command != "" {
			s.add(TouchesNothing, h.show.Command, h.show.Why)
		}
		if !h.hasMuch() {
			continue
		}
		switch unit := strings.TrimSpace(h.owner.Unit); {
		case h.owner.PodUID != "":
			f.addEndOfPod(s, h.owner.PodUID, replaced)
		case !safe(unit):
		case strings.HasPrefix(unit, "session-") && strings.HasSuffix(unit, ".scope"):
			s.add(TouchesProcess, "systemctl kill --signal=SIGKILL "+unit, "Ends all that was started in this login, and nothing else.")
		default:
			s.add(TouchesNothing, "systemctl status --no-pager "+unit, "What is it, since when does it run, and does it grow? A restart of it is its owner's to decide.")
		}
	}
}

// addEndOfPod adds what ends a pod. Where the lists do not hold its name, its folder of logs has it.
func (f *Facts) addEndOfPod(s *steps, uid, replaced string) {
	logs := or(f.seen().Settings.Value.PodLogsDir, "/var/log/pods")
	switch pod := f.owned(host.Owner{PodUID: uid}); {
	case pod.Pod == "" && safe(uid) && safePath.MatchString(logs):
		s.add(TouchesNothing, fmt.Sprintf("ls -d %s/*_%s", logs, uid), "Which pod is it? The runtime's lists do not say; the folder of its logs is called after namespace, name and UID.")
	case f.isStaticPod(uid):
		s.add(TouchesNothing, "ls -l /etc/kubernetes/manifests", "A static pod: kubectl delete does nothing to it. It ends when its manifest leaves the kubelet's folder, usually this one.")
	default:
		f.addDeletePodByUID(s, uid, replaced)
	}
}

// isStaticPod reports whether the kubelet has a pod from a file or a URL, not from the API server.
func (f *Facts) isStaticPod(uid string) bool {
	if f.Measurement == nil || f.Measurement.Sandboxes == nil {
		return false
	}
	return slices.ContainsFunc(f.Measurement.Sandboxes.Sandboxes, func(b crictl.PodSandbox) bool {
		return b.Pod != nil && b.Pod.UID == uid && b.ConfigSource != "" && b.ConfigSource != "api"
	})
}
