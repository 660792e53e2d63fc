package judge

import (
	"strings"
	"testing"

	"github.com/kdiag/kdiag/journal"
)

// A kubelet that was stopped (SIGSTOP) for 4 min 34 s: it writes nothing, then one skip line with an age that a loop
// which runs reports 87 s earlier.
func TestStoppedKubelet(t *testing.T) {
	r := readText(t, journal.Options{Inputs: []journal.Input{{Path: "../../journal/testdata/kubelet/stopped.log"}}})
	if len(r.Episodes) != 2 || r.Episodes[1].Kind != journal.Incident || !r.Episodes[1].Recovered {
		t.Fatalf("want a start and an incident that ended%s", causesOf(r))
	}
	first := r.Episodes[1].Causes[0]
	if first.Code != "KubeletStalled" || first.Confidence < 0.7 ||
		!strings.Contains(first.Summary, "for 1m22s or more") {
		t.Errorf("first is %+v", first)
	}
	if c, ok := causeIn(r, "RuntimeHung"); ok {
		t.Errorf("nobody asked the runtime: %+v", c)
	}
	if r.Failing != nil {
		t.Errorf("nothing fails at the end: %+v", r.Failing)
	}
}
