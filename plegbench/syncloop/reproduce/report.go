package reproduce

import (
	"fmt"
	"strings"
)

// A Report is what a run has shown.
type Report struct {
	Scenario string  `json:"scenario"`
	Summary  string  `json:"summary"`         // what goes wrong in it
	Cause    string  `json:"cause,omitempty"` // cause code of kdiag pleg
	Runtime  string  `json:"runtime"`         // name and version
	Endpoint string  `json:"endpoint"`        // empty for the embedded runtime
	Speed    float64 `json:"speed"`           // by which all periods of the kubelet were shortened
	Pods     int     `json:"pods"`
	Events   []Event `json:"events"`

	NotReadyExpected bool `json:"notReadyExpected"`
	// From the first fault to the first NotReady, in this run and at a kubelet's own pace. Absent if the node stayed
	// Ready.
	NotReadyAfterSeconds        *float64 `json:"notReadyAfterSeconds,omitempty"`
	NotReadyAfterKubeletSeconds *float64 `json:"notReadyAfterKubeletSeconds,omitempty"`
	Reason                      string   `json:"reason,omitempty"`  // of the Ready condition then
	Message                     string   `json:"message,omitempty"` // of the Ready condition then
	// From the end of the fault until the node was Ready and all pods ran. Absent if that was not reached.
	RecoveredAfterSeconds        *float64 `json:"recoveredAfterSeconds,omitempty"`
	RecoveredAfterKubeletSeconds *float64 `json:"recoveredAfterKubeletSeconds,omitempty"`

	Why         string   `json:"why"`                // the node turns NotReady, or does not
	Missed      []string `json:"missed"`             // differences from the scenario; empty if there are none
	Interrupted bool     `json:"interrupted"`        // it was cut short, and all after it did not happen
	CleanedUp   bool     `json:"cleanedUp"`          // nothing of the run is left in the runtime
	Log         string   `json:"log,omitempty"`      // file with the kubelet's log of the run
	Problems    []string `json:"problems,omitempty"` // why it was not played, or not to its end, for a person
}

// report sums up.
func (r *run) report() *Report {
	t, s := &r.timeline, &r.cfg.Scenario
	out := &Report{
		Scenario: s.Name, Summary: s.Summary, Cause: s.Cause, Runtime: r.runtime, Endpoint: r.cfg.Endpoint, Speed: r.cfg.Speed, Pods: r.cfg.Pods,
		Events: append([]Event{}, t.events...), NotReadyExpected: s.NotReady != "", Why: s.Why, Missed: []string{}, CleanedUp: r.cleaned,
	}
	out.Missed = append(out.Missed, r.missed...)
	both := func(seconds float64) (*float64, *float64) {
		kubelet := seconds * r.cfg.Speed
		return &seconds, &kubelet
	}
	if !t.notReady.IsZero() {
		out.Reason, out.Message = "KubeletNotReady", t.message
		out.NotReadyAfterSeconds, out.NotReadyAfterKubeletSeconds = both(t.notReady.Sub(t.first).Seconds())
	}
	if !r.recovered.IsZero() {
		out.RecoveredAfterSeconds, out.RecoveredAfterKubeletSeconds = both(r.recovered.Sub(t.lifted).Seconds())
	}
	return out
}

// judge compares the node's condition with the scenario. The result is empty if they agree.
func judge(want, message string, notReady bool) string {
	switch {
	case want == "" && notReady:
		return "the node turned NotReady, which it should not: " + message
	case want != "" && !notReady:
		return "the node stayed Ready; it should have turned NotReady with " + want
	case !strings.Contains(message, want):
		return fmt.Sprintf("the node turned NotReady with %q, which does not say %s", message, want)
	}
	return ""
}
