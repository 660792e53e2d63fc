package causes

import (
	"time"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/plegbench"
)

// affects sets what the cause does to the node, and returns the finding.
func (c *Finding) affects(effect ...string) *Finding {
	c.Effect = effect
	return c
}

// inspectsOnce is the kubelet's minor version from which a relist inspects a failing pod once. Up to 1.35 it does so
// twice: because the pod's record was not advanced, and because the pod is marked (podsToReinspect in
// pkg/kubelet/pleg/generic.go).
const inspectsOnce = 36

// A hold is what hung status calls do to the kubelet: the length of a relist in two ranges of its versions.
type hold struct {
	older, newer time.Duration // up to 1.35, and since
	lists        time.Duration
	threshold    time.Duration
	minor        int // of this node's kubelet; 0 when not known
}

func holdOf(f *facts.Facts, pods int) hold {
	h := hold{
		lists: f.Calls.ListMedian, threshold: f.Calls.Threshold, minor: f.Agent.Minor,
		newer: time.Duration(pods) * f.Calls.KubeletTimeout,
	}
	h.older = 2 * h.newer
	if s := f.Summary; s != nil && s.ProjectedSeconds != nil && s.OlderProjectedSeconds != nil {
		h.newer, h.older = Optional(s.ProjectedSeconds), Optional(s.OlderProjectedSeconds)
	}
	return h
}

// over reports whether relists of such a length make the node NotReady: one counts from its start until the lists of
// the next have answered.
func (h hold) over(relist time.Duration) bool {
	return relist+plegbench.RelistPeriod+h.lists > h.threshold
}

// notReady reports whether the node turns NotReady; of a kubelet of unknown version, whether any does.
func (h hold) notReady() bool {
	return h.minor < inspectsOnce && h.over(h.older) || (h.minor == 0 || h.minor >= inspectsOnce) && h.over(h.newer)
}

// effect is what that does to the node, a line for each range of versions.
func (h hold) effect() []string {
	words := func(relist time.Duration) string {
		about := relist.Round(time.Second)
		if about >= time.Minute {
			about = about.Round(30 * time.Second)
		}
		if h.over(relist) {
			return textf("NotReady about every %s", about)
		}
		return textf("Ready, pod updates %s late", about)
	}
	switch {
	case h.minor >= inspectsOnce:
		return []string{textf("kubelet 1.%d: %s", h.minor, words(h.newer))}
	case h.minor > 0:
		return []string{textf("kubelet 1.%d: %s", h.minor, words(h.older))}
	}
	return []string{"kubelet <= 1.35: " + words(h.older), "kubelet >= 1.36: " + words(h.newer)}
}

// noRelist is the effect of lists that never arrive: PLEG's clock stands still from the start of the last good relist.
func noRelist(f *facts.Facts) string {
	line := textf("kubelet: NotReady %s after the last good relist", f.Calls.Threshold)
	if f.Agent.PLEGKnown && !f.Target.OtherEndpoint {
		at := f.Now.Add(f.Calls.Threshold - f.Agent.PLEGAge)
		line += choose(at.After(f.Now), ", at ", ", since ") + facts.ClockText(f, at)
	}
	return line
}

// noStatus is the effect of a runtime that answers nothing: its status fails long before its relists are too old
// (kubelet.go: maxWaitForContainerRuntime).
const noStatus = "kubelet: NotReady 30s after the last good Status; containers keep running, none starts or stops"
