package journalcmd_test

import (
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
			log := filepath.Join(t.TempDir(), "kubelet.log")
			played := apptest.Kdiag(t.Context(), "reproduce", scenario, "--log", log, "-o", "json")
			if r := apptest.Decode[render.ReproductionReport](t, played); played.Code != 0 || len(r.Missed) > 0 {
				t.Skipf("a busy machine: not played as it should be: %v", r.Missed)
			}
			r := apptest.Decode[journal.Report](t, apptest.Kdiag(t.Context(), "journal", "-o", "json", log))
			if cause == "" {
				if len(r.Incidents()) > 0 || r.Failing != nil {
					t.Errorf("%s: %+v", r.Verdict, r.Episodes)
				}
				return
			}
			e := r.Headline()
			if e == nil || r.Verdict != "RECOVERED" || len(e.Causes) == 0 || e.Causes[0].Code != cause {
				t.Errorf("%s, want RECOVERED and %s: %+v", r.Verdict, cause, e)
			}
		})
	}
}
