package judge

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostInotify() Check {
	return Check{
		ID:    "host.inotify",
		Title: "inotify instances and watches of root are far from their limits",
		Text: "Counts what root's processes hold against fs.inotify.max_user_instances and max_user_watches. Each containerd shim on cgroup v2 takes an instance, and the kernel's default is 128. " +
			"The runtime, the kubelet and the shims are started without, or not at all, when there is none left.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.Inotify] { return n.Inotify }, func(v0 host.Inotify) checks.Result { return judgeInotify(f, v0) })
		},
	}
}

func judgeInotify(f *facts.Facts, n host.Inotify) checks.Result {
	instances, watches := f.Usage.InotifyInstances, f.Usage.InotifyWatches
	l := f.Limits.Node
	line := fmt.Sprintf("root holds %s instances and %s watches", usageOrNone(instances), usageOrNone(watches))
	switch status := facts.StatusOf(l, max(facts.Used(instances), facts.Used(watches))); {
	case status != checks.StatusOK:
		return result(status, "%s", line)
	case n.MaxInstances == 0:
		return result(checks.StatusUnknown, "the limits of inotify are not known")
	case n.Unread > 0:
		return result(checks.StatusUnknown, "%s, not counting %s that could not be read", line, units.Plural(n.Unread, "1 process", units.Number(n.Unread)+" processes"))
	}
	return result(checks.StatusOK, "%s", line)
}
