package causes

import (
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// PIDsExhausted is the code of this cause.
const PIDsExhausted = "PIDsExhausted"

func loggedPIDsExhausted(in *Incident) *Finding {
	return in.early(checks.Strong, "New processes or threads cannot be started.", signature.ForkFailed,
		signature.ForkRejected)
}

func recognisePIDsExhausted(f *facts.Facts) *Finding {
	limits := f.Usage.PIDs
	if len(limits) == 0 {
		return pressed(f, "PIDPressure")
	}
	main := limits[0]
	var e checks.Evidence
	var subjects []checks.Subject
	critical := false
	for _, l := range limits {
		Addf(&e.For, "%s", l.Line)
		addIf(l.Group.Events > 0, &e.For, "forks refused so far: %s", units.Number(l.Group.Events))
		critical = critical || !l.Pod && l.Share >= f.Limits.Node.LimitCritical
		ofGroup := groupSubject(f, l.Group.Path, l.Group.Owner)
		subjects = append(subjects, ifElse(l.Group.Path == "", ofNode("process table"), ofGroup))
	}
	e.For = facts.Head(e.For, facts.MaxRelated)
	if p := zombieParent(f); p != nil {
		Addf(&e.For, "%s are children of %s", units.Count(p.Count, "zombie"), processOwned(f, p.PID, p.Name, p.Owner))
	}
	consumers := pidConsumers(f, main)
	addConsumed(&e, consumers)
	// others may be at theirs
	if l := facts.Logged(f, signature.ForkRejected); l != nil && strings.Contains(l.Newest(), main.Group.Path) {
		logEvidence(f, &e, signature.ForkRejected)
	}
	logEvidence(f, &e, signature.ForkFailed)
	missing(f.Seen.Consumers, &e, "processes by owner")
	c := newFinding(criticalIf(critical), checks.Certain, main.Line+ofCulprit(consumers), e, subjects...)
	return c.blame(consumers).advise(func(s *Steps, _ string) {
		if dir := pidsDir(f, limits[0].Group); dir != "" {
			s.Look(textf("grep . '%s'/pids.*", dir), "Compare the number with the limit.")
		}
		s.lookIf(!limits[0].Pod, "cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max /proc/loadavg",
			"Compare the limits of the node with its threads (before the last number).")
		addConsumers(f, s, consumers, "Ends all of them. Set podPidsLimit before its replacement does the same.")
		s.lookIf(!shown(consumers), "ps -eo nlwp,pid,ppid,stat,comm --sort=-nlwp | head -n 15",
			"List who has most threads.")
		if p := zombieParent(f); p != nil && p.PID > 1 {
			s.Look(textf("cat /proc/%d/cgroup", p.PID),
				"Find the owner of the parent; zombies go when their parent ends.")
			addDeletePod(f, s, podOf(f, p.PodUID), "Ends the parent of the zombies, and with it the zombies.")
		}
		for _, l := range top(limits) {
			switch unit := strings.TrimSpace(l.Group.Unit); {
			case l.Pod:
				addDeletePod(f, s, podOf(f, l.Group.PodUID), "Ends the pod at its limit; it may reach the limit again.")
			case l.Group.Path == "":
				s.Add(checks.TouchesLimit, "sysctl -w kernel.pid_max=4194304", untilBoot)
			case facts.Safe(unit):
				s.Add(checks.TouchesLimit, "systemctl set-property --runtime "+unit+" TasksMax=infinity", untilBoot)
			case pidsDir(f, l.Group) != "":
				s.Add(checks.TouchesLimit, textf("echo max > '%s/pids.max'", pidsDir(f, l.Group)), untilBoot)
			}
		}
		if !limits[0].Pod {
			s.cordon()
		}
	})
}

// untilBoot explains a step that lifts a limit.
const untilBoot = "Lifts the limit until the next boot, without a restart; a leak continues."

// zombieParent is the process with most zombies, where they are many; else nil.
func zombieParent(f *facts.Facts) *host.ZombieParent {
	all := f.Seen.Tasks.Value.ZombiesByParent
	if len(all) == 0 || all[0].Count < f.Limits.Node.Zombies {
		return nil
	}
	return &all[0]
}

// pidConsumers returns the largest consumers of a limit of processes: control groups, and then processes by their
// names: one with many threads, the children of one parent, or a fork bomb.
func pidConsumers(f *facts.Facts, l facts.PIDLimit) []consumer {
	var out []consumer
	for _, g := range f.Seen.Consumers.Value.PIDs {
		share := facts.Share(g.Current, l.There)
		has := textf("has %s of them, %s", units.Number(g.Current), units.Percent(share))
		out = append(out, groupConsumer(f, g.Path, g.Dir, g.Owner, share, has, "grep . '%s'/pids.*"))
	}
	for _, c := range f.Seen.Consumers.Value.ProcessGroups {
		name, share := facts.Clean(c.Name), facts.Share(uint64(max(c.Threads, 0)), l.There)
		threads := textf("%s, %s", units.Count(c.Threads, "thread"), units.Percent(share))
		several := textf("%s processes called %s, which have %s", units.Number(c.Processes), name, threads)
		switch p := zombieParent(f); {
		case p != nil && p.PID == c.PID:
		case c.Processes == 1:
			out = append(out, processConsumer(f, c.PID, c.Name, c.Owner, share, "has "+threads,
				"ps -L -o comm= -p %d | sort | uniq -c | sort -rn | head -n 10"))
		case c.PID > 0:
			out = append(out, processConsumer(f, c.PID, c.Parent, c.Owner, share, "is the parent of most of "+several,
				"ps -o pid,nlwp,stat,etime,comm --ppid %d | tail -n 15"))
		default:
			h := consumer{text: several, share: share, subject: checks.Subject{Kind: "Process", Name: name}}
			if facts.Safe(c.Name) {
				h.show = "ps -o pid,ppid,nlwp,stat,etime -C " + c.Name + " | tail -n 15"
			}
			out = append(out, h)
		}
	}
	return worthNaming(out)
}

// pidsDir is where the limit of a control group can be read and set, safe to paste in single quotes; empty for none.
func pidsDir(f *facts.Facts, g host.CgroupUsage) string {
	if !safeDir(g.Path) {
		return ""
	}
	return ifElse(f.Seen.Cgroups.Value.Version == 1, "/sys/fs/cgroup/pids", "/sys/fs/cgroup") + g.Path
}
