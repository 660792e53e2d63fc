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

// hangEffect returns what status calls that hang in so many pods do to the node, a line for each range of kubelet
// versions, and whether one of them turns it NotReady. A relist counts from its start until the lists of the next have
// answered.
func hangEffect(f *facts.Facts, pods int) (effect []string, notReady bool) {
	newer := time.Duration(pods) * f.Calls.KubeletTimeout
	older := 2 * newer
	if s := f.Summary; s != nil && s.ProjectedSeconds != nil && s.OlderProjectedSeconds != nil {
		newer, older = Optional(s.ProjectedSeconds), Optional(s.OlderProjectedSeconds)
	}
	add := func(versions string, relist time.Duration) {
		about := relist.Round(time.Second)
		if about >= time.Minute {
			about = about.Round(30 * time.Second)
		}
		over := relist+plegbench.RelistPeriod+f.Calls.ListMedian > f.Calls.Threshold
		effect = append(effect, textf("kubelet %s: ", versions)+
			choose(over, textf("NotReady about every %s", about), textf("Ready, pod updates %s late", about)))
		notReady = notReady || over
	}
	switch minor := f.Agent.Minor; {
	case minor == 0:
		add("<= 1.35", older)
		add(">= 1.36", newer)
	default:
		add(textf("1.%d", minor), choose(minor < inspectsOnce, older, newer))
	}
	return effect, notReady
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
