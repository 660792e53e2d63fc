package reproducecmd_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// wantsOrder checks that these events are in the report, in this order, with others between them.
func wantsOrder(t *testing.T, events []reproduce.Event, want ...reproduce.What) {
	t.Helper()
	for _, what := range want {
		i := slices.IndexFunc(events, func(e reproduce.Event) bool { return e.What == what })
		if i < 0 {
			t.Errorf("no %s in its place; of %v, these are left: %+v", what, want, events)
			return
		}
		events = events[i+1:]
	}
}

// unhurriedSpeed leaves a busy machine time. At 60, the default, the runtime counts as down when nothing comes from
// it for half a second.
const unhurriedSpeed = "15"

// TestReproduce plays every incident on the embedded runtime, and has kdiag journal read the kubelet's log of it:
// where PLEG became unhealthy there must be one incident in it, with the cause of that name.
func TestReproduce(t *testing.T) {
	for _, name := range reproduce.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "kubelet.log")
			args := []string{"reproduce", name, "--speed", unhurriedSpeed, "--log", log, "-o", "json"}
			if name == "exited-flood" {
				args = append(args, "--exited", "50") // to make more takes a busy machine too long
			}
			got := apptest.Kdiag(t.Context(), args...)
			r := apptest.Decode[render.ReproductionReport](t, got)
			if got.Code != 0 || len(r.Missed) > 0 || !r.CleanedUp || got.Stderr != "" {
				t.Fatalf("exit code %d, missed %v, cleaned up %t, stderr %s\n%+v", got.Code, r.Missed, r.CleanedUp,
					got.Stderr, r.Events)
			}
			order := []reproduce.What{
				reproduce.Started,
				reproduce.Ready,
				reproduce.Fault,
				reproduce.Lifted,
				reproduce.Recovered,
				reproduce.CleanedUp,
			}
			if r.NotReadyExpected {
				order = slices.Insert(order, 3, reproduce.NotReady)
			}
			wantsOrder(t, r.Events, order...)
			if r.NotReadyExpected != (r.NotReadyAfterSeconds != nil) || r.RecoveredAfterSeconds == nil {
				t.Errorf("NotReady after %v, recovered after %v", r.NotReadyAfterSeconds, r.RecoveredAfterSeconds)
			}
			pleg := slices.ContainsFunc(r.Events, func(e reproduce.Event) bool {
				return e.Fault && e.What == reproduce.Skip && strings.Contains(e.Detail, "PLEG is not healthy")
			})
			readIncident(t, log, r.Cause, pleg)
		})
	}
}

// readIncident has kdiag journal find what happened.
func readIncident(t *testing.T, log, cause string, want bool) {
	t.Helper()
	found := 0
	report := apptest.Decode[journal.Report](t, apptest.Kdiag(t.Context(), "journal", log, "-o", "json"))
	for _, e := range report.Episodes {
		if e.Kind != "incident" {
			continue
		}
		found++
		if !e.Recovered || !slices.ContainsFunc(e.Causes, func(c journal.Cause) bool {
			// That many pods changed at once is not in a kubelet's log; that everything was answered late is.
			return string(c.Code) == cause || cause == "RelistOverloaded" && string(c.Code) == "RuntimeSlow"
		}) {
			t.Errorf("recovered %t, causes %v; want %s", e.Recovered, e.Causes, cause)
		}
	}
	if want && found != 1 || !want && found > 1 {
		t.Errorf("%d incidents in the log; PLEG was unhealthy in the fault: %t", found, want)
	}
}

// TestReproduceHung checks the timeline of a hung runtime, which is that of a real kubelet.
func TestReproduceHung(t *testing.T) {
	t.Parallel()
	got := apptest.Kdiag(t.Context(), "reproduce", "runtime-hung", "--speed", unhurriedSpeed, "-o", "json")
	r := apptest.Decode[render.ReproductionReport](t, got)
	wantsOrder(t, r.Events, reproduce.Fault, reproduce.PodDied, reproduce.EventsStop, reproduce.RelistStuck,
		reproduce.RelistFailed, reproduce.NotReady, reproduce.Skip, reproduce.Lifted, reproduce.PodNoticed,
		reproduce.PodRunning, reproduce.Recovered, reproduce.CleanedUp)
	if r.Reason != "KubeletNotReady" || r.Message != "container runtime is down" ||
		*r.NotReadyAfterKubeletSeconds < 120 {
		t.Errorf("reason %q, message %q, after %v", r.Reason, r.Message, *r.NotReadyAfterKubeletSeconds)
	}
}
