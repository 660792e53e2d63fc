package checks

import (
	"fmt"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostInotify() Check {
	return Check{
		ID:    "host.inotify",
		Title: "inotify instances and watches of root are far from their limits",
		Text: "Counts what root's processes hold against fs.inotify.max_user_instances and max_user_watches. Each containerd shim on cgroup v2 takes an instance, and the kernel's default is 128. " +
			"The runtime, the kubelet and the shims are started without, or not at all, when there is none left.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.Inotify] { return n.Inotify }, f.judgeInotify)
		},
	}
}

func (f *Facts) judgeInotify(n host.Inotify) Result {
	instances, watches := f.inotifyOfRoot()
	l := f.nodeLimits()
	line := fmt.Sprintf("root holds %s instances and %s watches", usageOrNone(instances), usageOrNone(watches))
	switch status := l.statusOf(max(used(instances), used(watches))); {
	case status != StatusOK:
		return result(status, "%s", line)
	case n.MaxInstances == 0:
		return result(StatusUnknown, "the limits of inotify are not known")
	case n.Unread > 0:
		return result(StatusUnknown, "%s, not counting %s that could not be read", line, verb(n.Unread, "1 process", units.Number(n.Unread)+" processes"))
	}
	return result(StatusOK, "%s", line)
}
