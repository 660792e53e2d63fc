package plegbench

import (
	gocmp "cmp"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
)

const ms = time.Millisecond

// measure measures a runtime and checks the measurement, in a synctest bubble: there waiting takes no time, and a
// goroutine that Measure leaves behind fails the test. A deadline of 0 is 30 s; one below 0 is when it is interrupted.
func measure(t *testing.T, s fake.Scenario, deadline time.Duration, opts Options,
	check func(*testing.T, *Measurement),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client, err := crictl.Dial("unix:///run/test.sock", crictl.Options{
			RPCTimeout: opts.RPCTimeout, Dialer: faketest.Serve(t, s),
		})
		testkit.Must(t, err)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), gocmp.Or(max(deadline, 0), 30*time.Second))
		defer cancel()
		if deadline < 0 {
			time.AfterFunc(-deadline, cancel)
		}
		if opts.Probe == nil {
			opts.Probe = probed(crictl.ConnectOK, 0)
		}
		if opts.Shuffle == nil {
			opts.Shuffle = func(int, func(i, j int)) {}
		}
		check(t, Measure(ctx, "unix:///run/test.sock", client, opts))
	})
}

// probed returns a probe of the socket that finds a state after a while.
func probed(state crictl.ConnectState, after time.Duration) func(context.Context, string) crictl.Connect {
	return func(context.Context, string) crictl.Connect {
		time.Sleep(after)
		return crictl.Connect{State: state}
	}
}

// node is a runtime with so many pods of one running container each, and so many exited ones in one more pod.
func node(pods, exited int, faults ...fake.Fault) fake.Scenario {
	s := fake.Scenario{
		Name: "test", Faults: faults,
		Pods: []fake.PodGroup{{Name: "web", Count: pods, Containers: []fake.ContainerGroup{{Name: "app"}}}},
	}
	if exited > 0 {
		s.Pods = append(s.Pods, fake.PodGroup{
			Name: "crash", Containers: []fake.ContainerGroup{{Name: "app", State: "exited", Exited: exited - 1}},
		})
	}
	return s
}

// slow makes the calls of a scenario that match rpc take a time.
func slow(s fake.Scenario, rpc string, base time.Duration) fake.Scenario {
	s.Latency = []fake.Latency{{RPC: rpc, Base: fake.Duration(base)}}
	return s
}

func hang(rpc, pod string) fake.Fault {
	return fake.Fault{RPC: rpc, Object: fake.Object{Pod: pod}, Hang: true}
}

// outcome is what the tests compare of a measurement. What is zero is left out.
func outcome(m *Measurement) string {
	out := m.Ended.Sub(m.Started).String()
	add := func(n int, what string) {
		if n > 0 {
			out += fmt.Sprintf(", %d %s", n, what)
		}
	}
	hungSamples, listed, hung, culprit := 0, 0, 0, ""
	for _, s := range m.Samples {
		if hungSample(s) {
			hungSamples++
		}
	}
	for _, i := range m.Sweep.Inspections {
		if i.Call.Hung() {
			hung, culprit = hung+1, i.Kind+" "+i.Pod.Name
		}
	}
	if m.Sandboxes != nil {
		listed += len(m.Sandboxes.Sandboxes)
	}
	if m.Containers != nil {
		listed += len(m.Containers.Containers)
	}
	add(len(m.Samples), "samples")
	add(hungSamples, "of them hung")
	if n := len(m.Samples); n > 0 && m.Samples[n-1].Mode == crictl.ModeStream {
		out += ", streams"
	}
	add(listed, "listed")
	if n := len(m.Liveness); n > 0 {
		out += ", liveness " + string(m.Liveness[n-1].Code)
	}
	if out += "; swept " + m.Sweep.Reach; len(m.Probes) == 0 {
		out += "without a probe"
	}
	if add(hung, "hung"); hung == 1 {
		out += ": " + culprit
	}
	if m.Stopped() {
		out += "; stopped"
	}
	if m.Interrupted != "" {
		out += "; " + m.Interrupted
	}
	return out
}

func TestMeasure(t *testing.T) {
	const goesOn = time.Hour // deadline of a measurement that ends before it
	aHint := func(context.Context) []Hint { return []Hint{{Kind: KindContainer, ID: "c"}} }
	streaming := node(5, 0)
	streaming.Streaming = true
	status := func(s fake.Scenario, base time.Duration) fake.Scenario { return slow(s, "*Status", base) }
	for _, tt := range []struct {
		name     string
		scenario fake.Scenario
		opts     Options
		deadline time.Duration // of the measurement; 0 means 30 s
		want     string
	}{
		{
			name: "the time is up", scenario: slow(node(100, 0), "ContainerStatus", 2*time.Second),
			deadline: 10 * time.Second,
			want: "9.5s, 5 samples, 200 listed, liveness OK; " +
				"swept 132 of 200: " + timeUp + "; " + timeUp,
		},
		{
			name: "budget", scenario: status(node(9, 1001), 100*ms),
			want: "10.3s, 5 samples, 1020 listed; swept 400 of 1020: all running first, then as far as 10s went",
		},
		// 1,020 times 990 ms is more than three minutes, and hung calls are looked for in four seconds.
		{
			name: "enough to tell", scenario: status(node(9, 1001), 990*ms),
			deadline: 8 * time.Second,
			want: "6.14s, 5 samples, 1020 listed; " +
				"swept 20 of 1020: enough to tell that inspecting all takes too long",
		},
		{
			name:     "a call that hangs is no mean: the sweep goes on",
			scenario: status(node(9, 1001, hang("*Status", "web-8")), 990*ms),
			want: "19.01s, 5 samples, 1020 listed; " +
				"swept 69 of 1020: all running first, then as far as 10s went, 2 hung",
		},

		// Twenty calls in four slots, a second each, and the deadline of the last.
		{
			name: "hung calls do not delay the rest", scenario: node(100, 0, hang("*Status", "web-9?")),
			want: "9.2s, 5 samples, 200 listed, liveness OK; swept all 200, 20 hung",
		},
		{
			"all hang", node(20, 0, hang("*", "")),
			Options{Hints: aHint},
			goesOn,
			"5s, 1 samples, 1 of them hung; swept nothing: without the lists, no sandbox or container is known",
		},
		{
			name: "frozen between samples", scenario: status(node(100, 0, until("*", "", 120*ms, 0)), 20*ms),
			want: "6.12s, 3 samples, 1 of them hung, 200 listed, liveness DeadlineExceeded; " +
				"swept 0 of 200: the runtime no longer answered anything, Version included; stopped",
		},
		{
			name: "hints hang", scenario: node(2, 0, hang("ListContainers", "")),
			opts: Options{Hints: func(ctx context.Context) []Hint {
				<-ctx.Done()
				time.Sleep(ms)
				return nil
			}},
			want: "12s, 1 samples, 1 of them hung, 2 listed; swept all 2",
		},

		{
			name: "interrupted in the sweep", scenario: slow(node(100, 0), "*", 200*ms), deadline: -2500 * ms,
			want: "2.5s, 5 samples, 200 listed; swept 8 of 200: interrupted; interrupted",
		},
		{
			name: "socket refused late", scenario: node(1, 0, hang("*", "")),
			opts: Options{Probe: probed(crictl.ConnectRefused, time.Second)},
			want: "1s; swept without a probe",
		},
		{
			name:     "a list that hangs has been waited for as long, and the host knows a container",
			scenario: node(3, 0, hang("ListContainers", "")),
			opts:     Options{Hints: aHint}, deadline: 8 * time.Second,
			want: "6.75s, 1 samples, 1 of them hung, 3 listed; swept all 4",
		},
		{
			"a small series stops after two hung", node(3, 0, until("ListPodSandbox", "", time.Second, 20*time.Second)),
			Options{Samples: 10, Pause: 500 * ms},
			goesOn,
			"11.5s, 4 samples, 2 of them hung, 6 listed, liveness OK; swept all 6",
		},
		{"streams", streaming, Options{Streaming: true}, 0, "200ms, 5 samples, streams, 10 listed; swept all 10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			measure(t, tt.scenario, tt.deadline, tt.opts, func(t *testing.T, m *Measurement) {
				testkit.Equal(t, "outcome", tt.want, outcome(m))
				time.Sleep(time.Second) // for what was left behind to end
			})
		})
	}
}
