package app_test

import (
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/crictl/fake"
)

// TestScenarios runs kdiag pleg against each scenario of the embedded runtime: each must lead to the cause that it
// names.
func TestScenarios(t *testing.T) {
	for _, s := range fake.Builtins() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			args := []string{"pleg", "--simulate", s.Name, "-o", "json"}
			switch s.Cause { // a busy machine adds seconds to a call, which must not look like a hang
			case "TooManyExited", "ListTooLarge":
				args = append(args, "--rpc-timeout", "25s", "--timeout", "75s")
			case "RuntimeSlow":
				// Its lists take 3.8s of the default of 5s. More than 13s would make 7s for both no longer critical.
				args = append(args, "--rpc-timeout", "10s", "--timeout", "40s")
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
				want := checks.Unhealthy
				if s.Cause == "RelistOverloaded" { // fine until the kubelet restarts
					want = checks.Degraded
				}
				if r := got.Wants(t, s.Cause); r.Status != want {
					t.Errorf("status %s, want %s", r.Status, want)
				}
			}
			if got.Stderr != "" {
				t.Errorf("stderr: %s", got.Stderr)
			}
		})
	}
}
