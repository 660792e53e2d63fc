package diagnosis_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/plegbench"
)

// TestMonitorAsMeasure has the judge find the same in each scenario of the embedded runtime whether a one-shot command
// measures it, or a service looks at it: closely for the first time, again while calls hang, and then as usual.
func TestMonitorAsMeasure(t *testing.T) {
	const endpoint = "unix:///run/test.sock"
	for _, s := range fake.Builtins() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				state := crictl.ConnectOK
				if s.Socket == fake.SocketRefuse {
					state = crictl.ConnectRefused
				}
				probe := func(context.Context, string) crictl.Connect { return crictl.Connect{State: state} }
				dialer := faketest.Serve(t, s)
				dial := func() *crictl.Client {
					c, err := crictl.Dial(endpoint, crictl.Options{Dialer: dialer})
					must(t, err)
					t.Cleanup(func() { _ = c.Close() })
					return c
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				want := verdict(plegbench.Measure(ctx, endpoint, dial(), plegbench.Options{Probe: probe}))
				m := plegbench.NewMonitor(endpoint, dial(), plegbench.MonitorOptions{
					Interval: 30 * time.Second, Sweep: 5 * time.Minute, Probe: probe,
				})
				defer m.Close()
				looks := 4
				switch s.Name {
				case "flapping":
					looks = 1 // it depends on the moment
				case "exited-flood":
					looks = 2 // 20,000 containers take long
				}
				for i := range looks {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					if diff := cmp.Diff(want, verdict(m.Poll(ctx, i < 2))); diff != "" {
						t.Errorf("look %d: %s", i, diff)
					}
					cancel()
					time.Sleep(5 * time.Second)
				}
			})
		})
	}
}

// verdict is what the judge finds, with the culprits.
func verdict(m *plegbench.Measurement) []string {
	in := &facts.Input{
		Now: m.Ended, Measurement: m, Summary: plegbench.Summarize(m, nil), HostMissing: "the runtime is simulated",
		Runtime: checks.Runtime{Endpoint: "unix:///run/test.sock", EndpointSource: string(crictl.SourceSimulated)},
	}
	r := judge.NewReport(checks.Header{}, in)
	found := []string{string(r.Status)}
	for _, c := range r.Causes {
		line := []string{c.Code, string(c.Severity)}
		if s := c.Subject; s != nil {
			line = append(line, s.Kind, s.Namespace, s.Pod, s.Name)
		}
		found = append(found, strings.Join(line, " "))
	}
	return found
}
