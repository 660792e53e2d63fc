package plegbench

import (
	"fmt"

	"github.com/kdiag/kdiag/crictl"
)

// unfinished counts the musts that were not inspected, or whose call was cut short.
func (s *sweeper) unfinished() int {
	n := 0
	for i, at := range s.order {
		if s.targets[at].turn == must && (i >= len(s.asked) || s.asked[i].Call.Code == crictl.Canceled) {
			n++
		}
	}
	return n
}

// cutShort reports whether ctx ended before the sweep had inspected every must.
func (s *sweeper) cutShort() bool {
	return (s.ctx.Err() != nil || s.stopped == stopEnded) && s.unfinished() > 0
}

// reach describes how far the calls went and why the sweep stopped. rest says when the others are made, if they are.
func (s *sweeper) reach(total int, made []Inspection, rest string) string {
	finished := 0
	for i := range made {
		if made[i].Call.Code != crictl.Canceled {
			finished++
		}
	}
	switch {
	case total == 0 && (s.out.Sandboxes == nil || s.out.Containers == nil):
		return "nothing: without the lists, no sandbox or container is known"
	case finished == total:
		return fmt.Sprintf("all %d", total)
	}
	why := "the runtime no longer answered anything, Version included"
	switch {
	case s.stopped == stopGone:
	case s.stopped == stopMany:
		why = fmt.Sprintf("%d calls were not answered", s.givenUp)
	case rest != "":
		why = rest
	case s.stopped == stopDecided:
		why = "enough to tell that inspecting all takes too long"
	case s.stopped == stopBudgeted:
		why = fmt.Sprintf("all running first, then as far as %v went", sweepBudget)
	case s.unfinished() == 0:
		why = "all running first, then as far as the time went"
	default:
		why = whyEnded(s.ctx)
	}
	return fmt.Sprintf("%d of %d: %s", finished, total, why)
}
