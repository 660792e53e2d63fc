package plegbench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// unfinished counts the musts that were not inspected, or whose call was cut short.
func (s *sweeper) unfinished() int {
	n := 0
	for i, t := range s.targets {
		if t.must && (i >= len(s.asked) || s.asked[i].Call.Code == crictl.Canceled) {
			n++
		}
	}
	return n
}

// cutShort reports whether the end of ctx kept the sweep from what it always does.
func (s *sweeper) cutShort() bool {
	return (s.ctx.Err() != nil || s.stopped == stopEnded) && s.unfinished() > 0
}

// reach describes how far the sweep went and why it stopped.
func (s *sweeper) reach() string {
	total, asked := len(s.targets), len(s.asked)
	if total == 0 {
		return s.nothing()
	}
	stalled := s.stalledAtEnd()
	if asked == total && s.finished() == asked {
		return "all " + thousands(total)
	}
	text := fmt.Sprintf("%s of %s: %s", thousands(s.finished()), thousands(total), s.why())
	if stalled != "" {
		text += "; " + stalled
	}
	return text
}

// finished counts the calls that were not cut short.
func (s *sweeper) finished() int {
	n := 0
	for i := range s.asked {
		if s.asked[i].Call.Code != crictl.Canceled {
			n++
		}
	}
	return n
}

// nothing describes why there was nothing to inspect.
func (s *sweeper) nothing() string {
	switch {
	case s.m.Sandboxes != nil && s.m.Containers != nil:
		return "nothing to ask about: there are no sandboxes and no containers"
	case s.ctx.Err() != nil:
		return "nothing: " + whyEnded(s.ctx)
	case s.gone:
		if i := slices.IndexFunc(s.m.Probes, failed); i >= 0 {
			return fmt.Sprintf("nothing: the runtime answers with %s", s.m.Probes[i].Code)
		}
		return "nothing: the runtime answers nothing"
	}
	return "nothing: without the lists, no sandbox or container is known"
}

// why describes why a sweep is incomplete.
func (s *sweeper) why() string {
	switch s.stopped {
	case stopGone:
		return "stopped because the runtime no longer answered anything, Version included"
	case stopMany:
		return fmt.Sprintf("stopped because %d calls were not answered", s.givenUp)
	case stopBudgeted:
		return s.musts() + fmt.Sprintf("then as far as %v went", s.opts.SweepBudget)
	}
	if s.unfinished() == 0 {
		return s.musts() + "then as far as the time went"
	}
	return "stopped early, " + whyEnded(s.ctx)
}

// musts names what was inspected first.
func (s *sweeper) musts() string {
	var ready, running, exited int
	for _, t := range s.targets {
		switch {
		case !t.must:
		case t.sandbox != nil:
			ready++
		case t.container.State == crictl.ContainerExited:
			exited++
		default:
			running++
		}
	}
	var b strings.Builder
	switch {
	case running > 0:
		b.WriteString("all running, ")
	case ready > 0:
		b.WriteString("all ready sandboxes, ")
	}
	if exited > 0 {
		fmt.Fprintf(&b, "the newest %s exited, ", thousands(exited))
	}
	return b.String()
}

// stalledAtEnd describes the calls that had stalled before they were cut short: they may hang, or not.
func (s *sweeper) stalledAtEnd() string {
	n := 0
	var longest time.Duration
	for i := range s.asked {
		if c := s.asked[i].Call; c.Code == crictl.Canceled && c.Elapsed > s.opts.stall() {
			n++
			longest = max(longest, c.Elapsed)
		}
	}
	if n == 0 {
		return ""
	}
	noun := "calls were"
	if n == 1 {
		noun = "call was"
	}
	return fmt.Sprintf("%d %s still without an answer, the oldest after %v", n, noun, longest.Round(100*time.Millisecond))
}

// thousands writes n with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
