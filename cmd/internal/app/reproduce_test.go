package app

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// TestReproduce plays every incident on the embedded runtime, and has kdiag journal read the kubelet's log of it:
// where PLEG became unhealthy there must be one incident in it, with the cause of that name.
func TestReproduce(t *testing.T) {
	for _, name := range reproduce.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, func(t *testing.T, kdiag func(args ...string) outcome) {
				log := filepath.Join(t.TempDir(), "kubelet.log")
				got := kdiag("reproduce", name, "--log", log, "-o", "json")
				r := decode[render.ReproductionReport](t, got)
				if got.code != 0 || len(r.Missed) > 0 || !r.CleanedUp || got.stderr != "" {
					t.Fatalf("exit code %d, missed %v, cleaned up %t, stderr %s\n%+v", got.code, r.Missed, r.CleanedUp,
						got.stderr, r.Events)
				}
				order := []reproduce.What{
					reproduce.Started, reproduce.Ready, reproduce.Fault, reproduce.Lifted, reproduce.Recovered,
					reproduce.CleanedUp,
				}
				if name == "runtime-hung" { // as with a real kubelet
					order = []reproduce.What{
						reproduce.Fault, reproduce.PodDied, reproduce.EventsStop, reproduce.RelistStuck,
						reproduce.RelistFailed, reproduce.NotReady, reproduce.Skip, reproduce.Lifted, reproduce.PodNoticed,
						reproduce.PodRunning, reproduce.Recovered, reproduce.CleanedUp,
					}
				}
				var whats []reproduce.What
				for _, e := range r.Events {
					whats = append(whats, e.What)
				}
				testkit.Equal(t, fmt.Sprintf("%v", whats), order, sequence(whats, order))
				if r.NotReadyExpected != (r.NotReadyAfterSeconds != nil) || r.RecoveredAfterSeconds == nil ||
					r.NotReadyExpected && r.Reason != "KubeletNotReady" {
					t.Errorf("NotReady after %v, %q, recovered after %v", r.NotReadyAfterSeconds, r.Reason,
						r.RecoveredAfterSeconds)
				}
				pleg := slices.ContainsFunc(r.Events, func(e reproduce.Event) bool {
					return e.Fault && e.What == reproduce.Skip && strings.Contains(e.Detail, "PLEG is not healthy")
				})
				wantsIncident(t, decode[journal.Report](t, kdiag("journal", log, "-o", "json")), r, pleg)
			})
		})
	}
}

// wantsIncident checks what kdiag journal has found.
func wantsIncident(t *testing.T, log *journal.Report, played *render.ReproductionReport, pleg bool) {
	t.Helper()
	found := log.Incidents()
	for _, e := range found {
		if !e.Recovered || !slices.ContainsFunc(e.Causes, func(c journal.Cause) bool {
			// That many pods changed at once is not in a kubelet's log; that everything was answered late is.
			return c.Code == played.Cause || played.Cause == "RelistOverloaded" && c.Code == "RuntimeSlow"
		}) {
			t.Errorf("recovered %t, causes %v; want %s", e.Recovered, e.Causes, played.Cause)
		}
	}
	if pleg && len(found) != 1 || !pleg && len(found) > 1 {
		t.Errorf("%d incidents in the log; PLEG was unhealthy in the fault: %t", len(found), pleg)
	}
	e := log.Headline()
	switch {
	case played.Cause == "" && (e != nil || log.Failing != nil):
		t.Errorf("%s: %+v", log.Verdict, log.Episodes)
	case played.NotReadyExpected && (e == nil || log.Verdict != "RECOVERED"):
		t.Errorf("%s, want RECOVERED: %+v", log.Verdict, e)
	case played.NotReadyExpected && e.Causes[0].Code != played.Cause && played.Cause != "RelistOverloaded":
		t.Errorf("%s comes first: %+v", e.Causes[0].Code, e)
	}
}

// TestScenarios runs kdiag pleg against each scenario of the embedded runtime: each must lead to the cause that it
// names.
func TestScenarios(t *testing.T) {
	for _, s := range fake.Builtins() {
		t.Run(s.Name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, kdiag func(args ...string) outcome) {
				status, code := checks.Unhealthy, 1
				switch s.Cause {
				case "":
					status, code = checks.Healthy, 0
				case "RelistOverloaded": // fine until the kubelet restarts
					status, code = checks.Degraded, 0
				}
				got := kdiag("pleg", "--simulate", s.Name, "-o", "json")
				r := decode[checks.Report](t, got)
				first := append(r.Causes, checks.Cause{})[0].Code
				if r.Status != status || first != s.Cause || got.code != code || got.stderr != "" {
					t.Errorf("%s %+v, want %s first; exit code %d, %s", r.Status, r.Causes, s.Cause, got.code, got.stderr)
				}
			})
		})
	}
}
