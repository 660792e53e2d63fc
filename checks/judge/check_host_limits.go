package judge

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// hostLimitChecks are the checks of limits, counts and the clock.
func hostLimitChecks() []Check {
	return []Check{
		{
			ID:    "host.pids",
			Title: "processes and threads are far from their limits",
			Text: "Counts all threads against kernel.pid_max and threads-max, and those of the units of runtime " +
				"and kubelet, of all pods and of single pods against the limits of their control groups. " +
				"Nine tenths of a limit of the node or its daemons is critical; a pod at its own is a warning.",
			read: reading(func(n *facts.Node) facts.Reading[host.PIDs] { return n.PIDs }, judgePIDs),
		},
		{
			ID:    "host.files",
			Title: "open files are far from their limits",
			Text: "Counts the descriptors of the runtime and the kubelet against their soft limit " +
				"(RLIMIT_NOFILE), and those of the node against fs.file-max. From 80 % on it is a warning, from " +
				"90 % critical.",
			read: reading(func(n *facts.Node) facts.Reading[host.Files] { return n.Files }, judgeFiles),
		},
		{
			ID:    "host.inotify",
			Title: "inotify instances and watches of root are far from their limits",
			Text: "Counts what root's processes hold against fs.inotify.max_user_instances and max_user_watches. " +
				"Each containerd shim on cgroup v2 takes an instance, and the kernel's default is 128. " +
				"The runtime, the kubelet and the shims are started without, or not at all, when there is none left.",
			read: reading(func(n *facts.Node) facts.Reading[host.Inotify] { return n.Inotify }, judgeInotify),
		},
		{
			ID:    "host.conntrack",
			Title: "the table of connections has room",
			Text: "Compares nf_conntrack_count with nf_conntrack_max. A full table drops new connections, those " +
				"of the kubelet to the API server and of probes among them; the kernel's log says \"nf_conntrack: " +
				"table full\". " +
				"It does not touch the runtime's socket, so it is no cause here.",
			read: reading(func(n *facts.Node) facts.Reading[host.Conntrack] { return n.Conntrack }, judgeConntrack),
		},
		{
			ID:    "host.cgroups",
			Title: "there are not too many control groups",
			Text: "Counts control groups, and those that are removed and still held by memory (dying). A full " +
				"node has 500 to 1,500; from 10,000 on the kubelet and systemd crawl, and at 65,535 no pod starts.",
			read: reading(func(n *facts.Node) facts.Reading[host.Cgroups] { return n.Cgroups }, judgeCgroups),
		},
		{
			ID:    "host.clock",
			Title: "the clock is kept and does not jump",
			Text: "Compares the wall clock with the monotonic one while kdiag runs, and asks the kernel whether " +
				"an NTP client keeps it (adjtimex). A jump is a warning, and so is a clock that nobody keeps: it " +
				"drifts by seconds " +
				"a day, until certificates and tokens do not fit.",
			read: reading(func(n *facts.Node) facts.Reading[host.Clock] { return n.Clock }, judgeClock),
		},
	}
}

func judgePIDs(f *facts.Facts, p host.PIDs) checks.Result {
	if p.Tasks <= 0 || p.PIDMax == 0 {
		return result(checks.StatusUnknown, "the number of threads or their limit is not known")
	}
	return result(checks.StatusOK, "%s threads, kernel.pid_max",
		facts.UsageText(host.Usage{Current: uint64(p.Tasks), Max: p.PIDMax}))
}

func judgeFiles(f *facts.Facts, files host.Files) checks.Result {
	if len(files.Processes) == 0 {
		return result(checks.StatusUnknown, "no process of the runtime or the kubelet could be read")
	}
	most := files.Processes[0]
	for _, p := range files.Processes {
		if facts.Used(p.Usage) > facts.Used(most.Usage) {
			most = p
		}
	}
	return result(checks.StatusOK, "%s (pid %d) has %s files open, the others fewer of theirs",
		facts.Clean(most.Name), most.PID, usageOrNone(most.Usage))
}

// usageOrNone is usage where there may be no limit.
func usageOrNone(u host.Usage) string {
	if u.Max == 0 {
		return units.Number(u.Current)
	}
	return facts.UsageText(u)
}

func judgeInotify(f *facts.Facts, n host.Inotify) checks.Result {
	instances, watches := f.Usage.InotifyInstances, f.Usage.InotifyWatches
	line := fmt.Sprintf("root holds %s instances and %s watches", usageOrNone(instances), usageOrNone(watches))
	switch {
	case n.MaxInstances == 0:
		return result(checks.StatusUnknown, "the limits of inotify are not known")
	case n.Unread > 0:
		return result(checks.StatusUnknown, "%s, not counting %s that could not be read", line,
			units.Plural(n.Unread, "1 process", units.Number(n.Unread)+" processes"))
	}
	return result(checks.StatusOK, "%s", line)
}

func judgeCgroups(f *facts.Facts, g host.Cgroups) checks.Result {
	line := units.Count(g.Total, "control group")
	if g.Dying >= 0 && g.Version == 2 {
		line += ", " + units.Number(g.Dying) + " dying"
	}
	if g.Total == 0 {
		return result(checks.StatusUnknown, "no control group was seen")
	}
	return result(checks.StatusOK, "%s", line)
}

func judgeClock(f *facts.Facts, c host.Clock) checks.Result {
	if c == (host.Clock{}) {
		return result(checks.StatusUnknown, "the clock was not read")
	}
	if !c.Synchronised {
		return result(checks.StatusWarning,
			"the kernel says that no NTP client keeps it; with chrony without rtcsync it says so too")
	}
	return result(checks.StatusOK, "kept by an NTP client, at most %s off by its own estimate",
		units.Duration(c.MaxError))
}

func judgeConntrack(f *facts.Facts, c host.Conntrack) checks.Result {
	if c.Max == 0 {
		return result(checks.StatusSkipped, "connections are not tracked on this node")
	}
	status := checks.StatusOK
	if severity, high := facts.Rank(f.Limits.Node, facts.Used(c.Usage)); high {
		status = checks.Status(severity)
	}
	return result(status, "%s entries", facts.UsageText(c.Usage))
}
