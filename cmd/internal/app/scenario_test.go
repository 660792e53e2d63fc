package app_test

import (
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl/fake"
)

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
				first := append(codes(r), "")[0]
				if r.Status != status || first != s.Cause || got.code != code || got.stderr != "" {
					t.Errorf("%s %v, want %s first; exit code %d, %s", r.Status, codes(r), s.Cause, got.code, got.stderr)
				}
			})
		})
	}
}
