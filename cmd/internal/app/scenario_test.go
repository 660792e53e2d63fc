package app_test

import (
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/crictl/fake"
)

// TestScenarios runs the whole of kdiag pleg against each scenario of the embedded runtime: each must lead to the cause
// that it names.
func TestScenarios(t *testing.T) {
	for _, s := range fake.Builtins() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			args := []string{"pleg", "--simulate", s.Name, "-o", "json"}
			if s.Cause == "TooManyExited" || s.Cause == "ListTooLarge" {
				args = append(args, "--rpc-timeout", "25s", "--timeout",
					"75s") // a busy machine takes long over so much, and nothing hangs
			}
			got := apptest.Kdiag(t.Context(), args...)
			switch {
			case s.Name == "flapping":
				// RuntimeSlow or RuntimeHung by the moment; it starts slow.
				if first := apptest.Codes(got.Report(t)); len(first) == 0 ||
					first[0] != "RuntimeSlow" && first[0] != "RuntimeHung" {
					t.Errorf("causes %v, want RuntimeSlow or RuntimeHung first", first)
				}
			case s.Cause == "":
				if r := got.Report(t); r.Status != checks.Healthy || len(r.Causes) != 0 || got.Code != 0 {
					t.Errorf("status %s, causes %v, exit code %d; want healthy", r.Status, apptest.Codes(r), got.Code)
				}
			default:
				if r := got.Wants(t, s.Cause); r.Status != checks.Unhealthy {
					t.Errorf("status %s; a scenario is bad enough to be unhealthy", r.Status)
				}
			}
			if got.Stderr != "" {
				t.Errorf("stderr: %s", got.Stderr)
			}
		})
	}
}
