package causes

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// PIDsExhausted is the code of this cause.
const PIDsExhausted = "PIDsExhausted"

var pidsExhausted = Definition{
	Code:      PIDsExhausted,
	Claims:    []string{"host.pids"},
	Recognise: recognisePIDsExhausted,
	FromLog: fromRecords(hostTier, 0.75, "New processes or threads cannot be started.",
		signature.ForkFailed, signature.ForkRejected),
}

func recognisePIDsExhausted(f *facts.Facts) *Finding {
	limits := f.Usage.PIDs
	if len(limits) == 0 {
		return nil
	}
	main := limits[0]
	var e checks.Evidence
	severity := checks.Warning
	for _, l := range limits[:min(len(limits), facts.MaxRelated)] {
		Addf(&e.For, "%s", l.Line)
		if l.Group.Events > 0 {
			Addf(&e.For, "the kernel refused %s there so far", units.Count(int(min(l.Group.Events, 1<<31)), "fork"))
		}
		if !l.Pod && l.Share >= f.Limits.Node.LimitCritical {
			severity = checks.Critical
		}
	}
	zombies := f.Seen.Tasks.Value
	parents := zombies.ZombiesByParent
	if zombies.Zombies >= f.Limits.Node.Zombies && len(parents) > 0 {
		Addf(&e.For, "%s; %s are children of %s (pid %d)%s", units.Count(zombies.Zombies, "zombie"),
			units.Number(parents[0].Count), facts.Clean(parents[0].Name), parents[0].PID, facts.OwnerSuffix(f,
				parents[0].Owner))
	}
	holders := pidHolders(f, main)
	addHolderLines(f, &e, holders, main.Group.Path == "", "the processes and threads")
	// others may be at theirs
	if l := facts.Logged(f, signature.ForkRejected); l != nil && strings.Contains(l.Example, main.Group.Path) {
		logEvidence(f, &e, signature.ForkRejected)
	}
	logEvidence(f, &e, signature.ForkFailed)
	missing(f.Seen.PIDs, &e, "further limits on processes")
	missing(f.Seen.Holders, &e, "who has the processes")
	c := newFinding(severity, checks.Certain, main.Line+ofCulprit(holders), e)
	c.Subject = pidSubject(f, main)
	for _, l := range limits[1:min(len(limits), facts.MaxRelated+1)] {
		c.Related = append(c.Related, *pidSubject(f, l))
	}
	c.blame(holders)
	c.Advise = func(string) []checks.NextStep { return stepsWhenPIDsExhausted(f, limits, holders) }
	return c
}

func pidSubject(f *facts.Facts, l facts.PIDLimit) *checks.Subject {
	if l.Group.Path == "" {
		return &checks.Subject{Kind: "Node", Name: "process table"}
	}
	return new(groupSubject(f, l.Group.Path, l.Group.Owner))
}

// pidHolders are who has most of the processes that count for a limit: control groups, and then processes by their
// names.
func pidHolders(f *facts.Facts, l facts.PIDLimit) []consumer {
	seen := f.Seen.Holders.Value
	var out []consumer
	for _, g := range seen.PIDs {
		h := groupHolder(f, g.Path, g.Owner)
		h.share, h.brief = facts.Share(g.Current, l.There), fmt.Sprintf("%s has %s of them", h.name,
			units.Number(g.Current))
		h.line = fmt.Sprintf("%s, %s", h.brief, units.Percent(h.share))
		switch {
		case g.Max > 0:
			h.line += ", and a limit of " + units.Number(g.Max)
		case g.PodUID != "":
			h.line += ", and no limit"
		}
		if safeDir(g.Dir) {
			h.show = checks.NextStep{Command: fmt.Sprintf("grep . '%s'/pids.*", g.Dir), Why: "Does the number of " +
				h.name + " grow? Look twice."}
		}
		out = append(out, h)
	}
	for _, c := range seen.ProcessGroups {
		if z := f.Seen.Tasks.Value.ZombiesByParent; len(z) == 0 || z[0].PID != c.PID ||
			z[0].Count < f.Limits.Node.Zombies {
			out = append(out, crowdHolder(f, c, l.There))
		}
	}
	return worthNaming(out)
}

// crowdHolder describes the processes of one name: one with many threads, the children of one parent, or a fork bomb.
func crowdHolder(f *facts.Facts, c host.ProcessGroup, all uint64) consumer {
	name, threads := facts.Clean(c.Name), uint64(max(c.Threads, 0))
	part := units.Percent(facts.Share(threads, all))
	var h consumer
	switch {
	case c.Processes == 1:
		h = processHolder(f, c.PID, c.Name, c.Owner)
		h.line = fmt.Sprintf("%s has %s, %s", h.name, units.Count(c.Threads, "thread"), part)
		h.show = checks.NextStep{
			Command: fmt.Sprintf("ps -L -o comm= -p %d | sort | uniq -c | sort -rn | head -n 10", c.PID),
			Why:     "Of which kind are the threads of " + h.name + "? They often have names of their own.",
		}
	case c.PID > 0:
		h = processHolder(f, c.PID, c.Parent, c.Owner)
		h.line = fmt.Sprintf("%s processes called %s have %s, %s; most are children of %s", units.Number(c.Processes),
			name, units.Count(c.Threads, "thread"), part, h.name)
		h.show = checks.NextStep{
			Command: fmt.Sprintf("ps -o pid,nlwp,stat,etime,comm --ppid %d | tail -n 15", c.PID),
			Why:     "What has " + h.name + " started, and does it wait for them?",
		}
	default:
		h = consumer{name: "processes called " + name, subject: checks.Subject{Kind: "Process", Name: name}}
		h.line = fmt.Sprintf("%s processes called %s have %s, %s; no parent has most of them",
			units.Number(c.Processes), name, units.Count(c.Threads, "thread"), part)
		if facts.Safe(c.Name) {
			h.show = checks.NextStep{
				Command: "ps -o pid,ppid,nlwp,stat,etime -C " + c.Name + " | tail -n 15",
				Why:     "Where do they come from? A fork bomb is children of children, all of the same name and age.",
			}
		}
	}
	h.share, h.brief = facts.Share(threads, all), h.line
	return h
}

// pidsDir is where the limit of a control group can be read and set, safe to paste in single quotes; empty for none.
func pidsDir(f *facts.Facts, g host.CgroupUsage) string {
	switch {
	case !safeCgroup.MatchString(g.Path) || strings.Contains(g.Path, ".."):
		return ""
	case f.Seen.Cgroups.Value.Version == 1:
		return "/sys/fs/cgroup/pids" + g.Path
	}
	return "/sys/fs/cgroup" + g.Path
}

func stepsWhenPIDsExhausted(f *facts.Facts, limits []facts.PIDLimit, holders []consumer) []checks.NextStep {
	var s Steps
	if dir := pidsDir(f, limits[0].Group); dir != "" {
		s.Add(checks.TouchesNothing, fmt.Sprintf("grep . '%s'/pids.*", dir),
			"How many are there, against which limit, and how often was a fork refused?")
	}
	if !limits[0].Pod {
		s.Add(checks.TouchesNothing, "cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max /proc/loadavg",
			"How many threads are there (behind the slash), against which limit?")
	}
	addHolders(f, &s, holders,
		"Ends them all. Its replacement starts with none, and may get there again: it needs a limit (podPidsLimit).")
	if !shown(holders) {
		s.Add(checks.TouchesNothing, "ps -eo nlwp,pid,ppid,stat,comm --sort=-nlwp | head -n 15", "Who has the threads?")
	}
	if z := f.Seen.Tasks.Value.ZombiesByParent; len(z) > 0 && z[0].PID > 1 && z[0].Count >= f.Limits.Node.Zombies {
		s.Add(checks.TouchesNothing, "cat /proc/"+strconv.Itoa(z[0].PID)+"/cgroup",
			fmt.Sprintf("%s (pid %d) does not wait for its children: whose is it? Zombies go when their parent ends.",
				facts.Clean(z[0].Name), z[0].PID))
		addDeletePodByUID(f, &s, z[0].PodUID, "Ends the parent of the zombies, and with it the zombies.")
	}
	for _, l := range limits[:min(len(limits), 3)] {
		switch unit := strings.TrimSpace(l.Group.Unit); {
		case l.Pod:
			addDeletePodByUID(f, &s, l.Group.PodUID,
				"The pod at its limit. Its replacement starts with no threads, and may get there again.")
		case l.Group.Path == "":
			s.Add(checks.TouchesScheduler, "sysctl -w kernel.pid_max=4194304",
				"Raises the node's limit until the next boot, where that is the one reached. The leak goes on.")
		case facts.Safe(unit):
			s.Add(checks.TouchesScheduler, "systemctl set-property --runtime "+unit+" TasksMax=infinity",
				"Takes the limit off the unit until the next boot, without a restart.")
		case pidsDir(f, l.Group) != "":
			s.Add(checks.TouchesScheduler, fmt.Sprintf("echo max > '%s/pids.max'", pidsDir(f, l.Group)),
				"Takes the limit off the control group until the next boot, without a restart.")
		}
	}
	if !limits[0].Pod {
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod can start here.")
	}
	return s.Done()
}
