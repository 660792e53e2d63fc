package judge

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostSpace() Check {
	return Check{
		ID:    "host.space",
		Title: "file systems of runtime, kubelet and logs have space",
		Text: "Asks each of them (statfs) how much is free, against the kubelet's eviction thresholds (nodefs 10 %, imagefs 15 % unless set). Less than 1 % and less than 1 GiB is full. One that does not answer, or is read-only " +
			"under the runtime or the kubelet, is critical.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[[]host.Space] { return n.Spaces }, func(s []host.Space) checks.Result { return judgeSpaces(f, s, false) })
		},
	}
}

func judgeSpaces(f *facts.Facts, spaces []host.Space, inodes bool) checks.Result {
	if !inodes {
		if i := slices.IndexFunc(spaces, func(s host.Space) bool { return s.Hung }); i >= 0 {
			return result(checks.StatusCritical, "the file system of %s does not answer", facts.Shortage{Space: spaces[i]}.Name())
		}
		if ro := f.Disk.ReadOnly; len(ro) > 0 {
			return result(checks.StatusCritical, "the file system of %s is read-only", facts.Shortage{Space: ro[0]}.Name())
		}
	}
	if short := facts.ShortOf(f, inodes); len(short) > 0 {
		status := checks.StatusWarning
		if short[0].Severity() == checks.Critical {
			status = checks.StatusCritical
		}
		line := short[0].Left(inodes)
		if short[0].Err != "" {
			line = "a write is refused: " + facts.Clean(short[0].Err)
		}
		return result(status, "%s: %s", short[0].Name(), line)
	}
	return answeredSpaces(spaces, inodes)
}

// answeredSpaces is the result when none is short: it is ok only when each that matters has answered.
func answeredSpaces(spaces []host.Space, inodes bool) checks.Result {
	least, tight, counted := 1.0, host.Space{}, 0
	for _, s := range spaces {
		if s.Err != "" || s.Hung {
			return result(checks.StatusUnknown, "the file system of %s was not read: %s", facts.Shortage{Space: s}.Name(), cmp.Or(facts.Clean(s.Err), "it did not answer"))
		}
		left, total := facts.Share(s.Free, s.Size), s.Size
		if inodes {
			left, total = facts.Share(s.InodesFree, s.Inodes), s.Inodes
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
		return result(checks.StatusOK, "%s, the least is %s free on %s", units.Plural(counted, "1 file system", units.Number(counted)+" file systems"), units.Percent(least), facts.Clean(tight.Mount))
	case inodes && len(spaces) > 0:
		return result(checks.StatusSkipped, "no file system that can be written has a fixed number of inodes")
	}
	return result(checks.StatusUnknown, "none of %s brought figures", units.Count(len(spaces), "file system"))
}
