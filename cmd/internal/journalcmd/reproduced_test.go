package journalcmd_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/journal"
)

// TestReproducedLogs plays incidents at 60 times the pace of a kubelet, and reads their logs: both agree whether the
// node was NotReady, that it recovered, and why.
func TestReproducedLogs(t *testing.T) {
	for scenario, cause := range map[string]string{
		"runtime-down": "RuntimeDown", "runtime-hung": "RuntimeHung", "runtime-not-ready": "RuntimeNotReady",
		"network-not-ready": "NetworkNotReady", "cni-hung": "CNIHung", "list-too-large": "ListTooLarge",
		"flapping": "RuntimeHung", "healthy": "",
	} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			// At this pace a busy machine shifts a record by minutes of the kubelet's time: that is played once more.
			wrong := replayed(t, scenario, cause)
			if wrong != "" {
				wrong = replayed(t, scenario, cause)
			}
			if wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// replayed plays a scenario and reads its log. It returns what they do not agree in.
func replayed(t *testing.T, scenario, cause string) (wrong string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "kubelet.log")
	played := apptest.Kdiag(t.Context(), "reproduce", scenario, "--log", log, "-o", "json")
	if r := apptest.Decode[render.ReproductionReport](t, played); played.Code != 0 || len(r.Missed) > 0 {
		return fmt.Sprintf("not played as it should be: %v", r.Missed)
	}
	r := apptest.Decode[journal.Report](t, apptest.Kdiag(t.Context(), "journal", "-o", "json", log))
	e := r.Headline()
	switch {
	case cause == "" && (len(r.Incidents()) > 0 || r.Failing != nil):
		return fmt.Sprintf("%s: %+v", r.Verdict, r.Episodes)
	case cause != "" && (e == nil || r.Verdict != "RECOVERED" || len(e.Causes) == 0 || e.Causes[0].Code != cause):
		return fmt.Sprintf("%s, want RECOVERED and %s: %+v", r.Verdict, cause, e)
	}
	return ""
}
