package checks

import (
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostSpace() Check {
	return Check{
		ID:    "host.space",
		Title: "file systems of runtime, kubelet and logs have space",
		Text: "Asks each of them (statfs) how much is free, against the kubelet's eviction thresholds (nodefs 10 %, imagefs 15 % unless set). Less than 1 % and less than 1 GiB is full. One that does not answer, or is read-only " +
			"under the runtime or the kubelet, is critical.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[[]host.Space] { return n.Spaces }, func(s []host.Space) Result { return f.judgeSpaces(s, false) })
		},
	}
}

func (f *Facts) judgeSpaces(spaces []host.Space, inodes bool) Result {
	if !inodes {
		if i := slices.IndexFunc(spaces, func(s host.Space) bool { return s.Hung }); i >= 0 {
			return result(StatusCritical, "the file system of %s does not answer", shortage{space: spaces[i]}.name())
		}
		if ro := f.readOnly(); len(ro) > 0 {
			return result(StatusCritical, "the file system of %s is read-only", shortage{space: ro[0]}.name())
		}
	}
	if short := f.shortages(inodes); len(short) > 0 {
		status := StatusWarning
		if short[0].severity() == Critical {
			status = StatusCritical
		}
		line := short[0].left(inodes)
		if short[0].err != "" {
			line = "a write is refused: " + clean(short[0].err)
		}
		return result(status, "%s: %s", short[0].name(), line)
	}
	return answeredSpaces(spaces, inodes)
}

// answeredSpaces is the result when none is short: it is ok only when each that matters has answered.
func answeredSpaces(spaces []host.Space, inodes bool) Result {
	least, tight, counted := 1.0, host.Space{}, 0
	for _, s := range spaces {
		if s.Err != "" || s.Hung {
			return result(StatusUnknown, "the file system of %s was not read: %s", shortage{space: s}.name(), or(clean(s.Err), "it did not answer"))
		}
		left, total := share(s.Free, s.Size), s.Size
		if inodes {
			left, total = share(s.InodesFree, s.Inodes), s.Inodes
		}
		if s.ReadOnly || total == 0 {
			continue
		}
		if counted++; left <= least {
			least, tight = left, s
		}
	}
	switch {
	case counted > 0:
		return result(StatusOK, "%s, the least is %s free on %s", verb(counted, "1 file system", units.Number(counted)+" file systems"), units.Percent(least), clean(tight.Mount))
	case inodes && len(spaces) > 0:
		return result(StatusSkipped, "no file system that can be written has a fixed number of inodes")
	}
	return result(StatusUnknown, "none of %s brought figures", units.Count(len(spaces), "file system"))
}
