package plegbench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
)

const ms = time.Millisecond

// measure measures a runtime and checks the measurement, in a synctest bubble: there waiting takes no time, and a
// goroutine that Measure leaves behind fails the test. A deadline of 0 is 30 s.
func measure(t *testing.T, s fake.Scenario, deadline time.Duration, opts Options,
	check func(*testing.T, *Measurement),
) {
	t.Helper()
	if deadline == 0 {
		deadline = 30 * time.Second
	}
	synctest.Test(t, func(t *testing.T) {
		client := serve(t, s, opts.RPCTimeout)
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		if opts.Probe == nil {
			opts.Probe = probed(crictl.ConnectOK, 0)
		}
		if opts.Shuffle == nil {
			opts.Shuffle = func(int, func(i, j int)) {}
		}
		check(t, Measure(ctx, "unix:///run/test.sock", client, opts))
	})
}

// serve returns a client of an embedded runtime. A timeout of 0 is the default.
func serve(t *testing.T, scenario fake.Scenario, timeout time.Duration) *crictl.Client {
	t.Helper()
	client, err := crictl.Dial("unix:///run/test.sock", crictl.Options{
		RPCTimeout: timeout, Dialer: faketest.Serve(t, scenario),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
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

// hangFrom is a hang that begins, and if until is not 0 ends, at a time after the start.
func hangFrom(rpc string, from, until time.Duration) fake.Fault {
	return fake.Fault{RPC: rpc, Hang: true, From: fake.Duration(from), Until: fake.Duration(until)}
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
	silent := func(ctx context.Context, _ string) crictl.Connect {
		<-ctx.Done()
		return crictl.Connect{State: crictl.ConnectSilent}
	}
	streaming := node(5, 0)
	streaming.Streaming = true
	lists := slow(node(3, 0), "List*", 3*time.Second)
	status := func(s fake.Scenario, base time.Duration) fake.Scenario { return slow(s, "*Status", base) }
	unavailable := fake.Fault{RPC: "*", Error: "Unavailable: server is not initialized yet"}
	removed := fake.Fault{
		RPC: "ContainerStatus", Object: fake.Object{Pod: "web-2"}, Error: "NotFound: no such container",
	}
	for _, tt := range []struct {
		name     string
		scenario fake.Scenario
		opts     Options
		deadline time.Duration // of the measurement; 0 means 30 s
		want     string
	}{
		{"healthy", node(20, 3), Options{}, 0, "200ms, 5 samples, 44 listed; swept all 44"},
		{"removed meanwhile", node(5, 0, removed), Options{}, 0, "200ms, 5 samples, 10 listed; swept all 10"},

		{
			name: "the time is up", scenario: slow(node(100, 0), "ContainerStatus", 2*time.Second),
			deadline: 10 * time.Second,
			want: "9.5s, 5 samples, 200 listed, liveness OK; " +
				"swept 132 of 200: " + errTimeUp.Error() + "; " + errTimeUp.Error(),
		},
		{
			name:     "the time is up when all musts are under way: none is known to hang",
			scenario: node(2, 0, hang("ContainerStatus", "")),
			opts:     Options{RPCTimeout: time.Minute},
			want: "29.5s, 5 samples, 4 listed, liveness OK; " +
				"swept 2 of 4: " + errTimeUp.Error() + "; " + errTimeUp.Error(),
		},
		{
			name: "budget", scenario: status(node(9, 1001), 100*ms),
			want: "10.3s, 5 samples, 1020 listed; swept 400 of 1020: all running first, then as far as 10s went",
		},
		{
			name: "musts go past the budget", scenario: status(node(9, 101), 990*ms),
			want: "19.01s, 5 samples, 120 listed; swept 69 of 120: all running first, then as far as 10s went",
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
		{
			name: "deep until the end", scenario: status(node(9, 1001), 200*ms),
			opts: Options{Deep: true},
			want: "29.5s, 5 samples, 1020 listed; swept 580 of 1020: all running first, then as far as the time went",
		},
		{"no sweep", node(9, 1001), Options{NoSweep: true}, 0, "200ms, 5 samples, 1020 listed; swept not asked for"},

		{
			name: "one container hangs", scenario: status(node(50, 0, hang("ContainerStatus", "web-7")), 10*ms),
			want: "5.38s, 5 samples, 100 listed, liveness OK; swept all 100, 1 hung: Container web-7",
		},
		{
			"one container hangs, and two seconds are little", node(50, 0, hang("ContainerStatus", "web-7")),
			Options{RPCTimeout: 1700 * ms},
			2 * time.Second,
			"1.8s, 5 samples, 100 listed, liveness OK; swept all 100, 1 hung: Container web-7",
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
			"all hang, and HTTP/2 too", node(20, 0, hang("*", "")),
			Options{Hints: aHint, Probe: silent},
			goesOn,
			"5.1s, 1 samples, 1 of them hung; swept nothing: without the lists, no sandbox or container is known",
		},
		{
			name: "frozen between samples", scenario: status(node(100, 0, hangFrom("*", 120*ms, 0)), 20*ms),
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
			name: "refused socket", scenario: node(1, 0, hang("*", "")),
			opts: Options{Probe: probed(crictl.ConnectRefused, 0)},
			want: "0s; swept without a probe",
		},
		{
			name: "socket refused late", scenario: node(1, 0, hang("*", "")),
			opts: Options{Probe: probed(crictl.ConnectRefused, time.Second)},
			want: "1s; swept without a probe",
		},
		// A server that refuses every call is asked no more, even where the host knows containers.
		{
			name: "not initialized", scenario: node(2, 0, unavailable),
			opts: Options{Hints: aHint},
			want: "0s, 1 samples; swept nothing: without the lists, no sandbox or container is known",
		},
		{
			name:     "lists of six seconds are slow, and one is enough",
			scenario: slow(node(3, 0), "ListContainers", 6*time.Second),
			want:     "6s, 1 samples, 6 listed; swept all 6",
		},
		{
			name:     "a list that hangs has been waited for as long, and the host knows a container",
			scenario: node(3, 0, hang("ListContainers", "")),
			opts:     Options{Hints: aHint}, deadline: 8 * time.Second,
			want: "6.75s, 1 samples, 1 of them hung, 3 listed; swept all 4",
		},
		{"very slow lists leave time for the sweep", lists, Options{}, 0, "9.05s, 2 samples, 6 listed; swept all 6"},
		{
			name: "a whole series of them", scenario: lists,
			opts: Options{Samples: 4, Record: true},
			want: "21.15s, 4 samples, 6 listed; swept all 6",
		},
		{
			"for", node(3, 0),
			Options{For: 10 * time.Second, Pause: time.Second, NoSweep: true},
			goesOn,
			"10s, 10 samples, 6 listed; swept not asked for",
		},
		{
			"for, bounded by samples", node(3, 0),
			Options{For: 10 * time.Second, Pause: time.Second, Samples: 3, NoSweep: true},
			goesOn,
			"2s, 3 samples, 6 listed; swept not asked for",
		},
		{
			"a small series stops after two hung", node(3, 0, hangFrom("ListPodSandbox", time.Second, 20*time.Second)),
			Options{Samples: 10, Pause: 500 * ms},
			goesOn,
			"11.5s, 4 samples, 2 of them hung, 6 listed, liveness OK; swept all 6",
		},
		{
			"a long one goes on", node(3, 0, hangFrom("ListPodSandbox", time.Second, 20*time.Second)),
			Options{Samples: 12, Record: true, Pause: 500 * ms},
			goesOn,
			"25.5s, 12 samples, 4 of them hung, 6 listed, liveness OK; swept all 6",
		},
		{"streams", streaming, Options{Streaming: true}, 0, "200ms, 5 samples, streams, 10 listed; swept all 10"},
		{"no streams", node(5, 0), Options{Streaming: true}, 0, "200ms, 5 samples, 10 listed; swept all 10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			measure(t, tt.scenario, tt.deadline, tt.opts, func(t *testing.T, m *Measurement) {
				if diff := cmp.Diff(tt.want, outcome(m)); diff != "" {
					t.Error(diff)
				}
				time.Sleep(time.Second) // for what was left behind to end
			})
		})
	}
}

// TestMeasureReports checks what is reported while a healthy runtime is measured.
func TestMeasureReports(t *testing.T) {
	var phases []string
	opts := Options{Progress: func(p Progress) {
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
	}}
	measure(t, node(1, 0), 0, opts, func(t *testing.T, m *Measurement) {
		var probes []string
		for _, c := range m.Probes {
			probes = append(probes, c.Method+" "+string(c.Code))
		}
		want := []string{
			"Version OK", "Status OK", "ListPodSandbox OK", "ListContainers OK", "ListImages OK", "ImageFsInfo OK",
		}
		if diff := cmp.Diff(want, probes); diff != "" || m.Version == nil || m.Status == nil {
			t.Errorf("version %v, status %v, probes %s", m.Version, m.Status, diff)
		}
		if got := strings.Join(phases, " "); got != "connect probe relist inspect" {
			t.Errorf("phases %q", got)
		}
	})
}

func TestMeasureCanceled(t *testing.T) {
	for at, want := range map[time.Duration]string{
		50 * ms:   "50ms, 1 samples; swept nothing: without the lists, no sandbox or container is known; interrupted",
		450 * ms:  "450ms, 2 samples, 200 listed; swept 0 of 200: interrupted; interrupted",
		2500 * ms: "2.5s, 5 samples, 200 listed; swept 8 of 200: interrupted; interrupted",
	} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := serve(t, slow(node(100, 0), "*", 200*ms), 0)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(at, cancel)
				m := Measure(ctx, "unix:///run/test.sock", client, Options{Probe: probed(crictl.ConnectOK, 0)})
				if diff := cmp.Diff(want, outcome(m)); diff != "" {
					t.Error(diff)
				}
				for _, c := range append(m.Probes, m.Liveness...) {
					if c.Hung() {
						t.Errorf("%s counts as hung", c.Method)
					}
				}
			})
		})
	}
}

func TestMeasureListTooLarge(t *testing.T) {
	const limit = 64 << 10
	spread := fake.Scenario{Name: "test", Limits: fake.MessageLimits{Send: limit}, Pods: []fake.PodGroup{
		{Name: "web", Count: 20, Containers: []fake.ContainerGroup{{Name: "app", Exited: 15}}},
	}}
	streamed := spread
	streamed.Streaming = true
	inOnePod := node(20, 300)
	inOnePod.Limits.Send = limit
	for _, tt := range []struct {
		name     string
		scenario fake.Scenario
		complete bool
		listed   int
	}{
		{"filtered lists stand in", spread, true, 320},
		{"streams stand in", streamed, true, 320},
		{"one sandbox is too large by itself", inOnePod, false, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			measure(t, tt.scenario, 0, Options{}, func(t *testing.T, m *Measurement) {
				for _, sample := range m.Samples {
					if sample.Containers.Code != crictl.ResourceExhausted || sample.Containers.Bytes <= limit {
						t.Errorf("a sample's containers: %s, %d bytes", sample.Containers.Code, sample.Containers.Bytes)
					}
				}
				l := m.Containers
				if len(m.Samples) != 2 || l == nil || l.Complete != tt.complete || len(l.Containers) != tt.listed {
					t.Fatalf("%d samples, list of %v", len(m.Samples), l != nil)
				}
				sum := Summarize(m, nil)
				if sum.ProjectedSeconds != nil || sum.List.Errors != 2 || sum.List.P50Seconds != nil {
					t.Errorf("a relist that fails has a length: %+v", sum)
				}
				if sum.ResponseRPC != "ListContainers" || sum.ResponseTruncated || *sum.ResponseBytes < 250_000 ||
					(sum.Containers != nil) != tt.complete {
					t.Errorf("the response of a list that is complete (%v): %+v", tt.complete, sum)
				}
			})
		})
	}
}

// TestPatience leaves time to find out whose status hangs where a list does, as far as there is any.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{opts: Options{RPCTimeout: 5 * time.Second}}
		for _, tt := range []struct{ left, want time.Duration }{
			{time.Minute, 10 * time.Second},
			{16 * time.Second, 10 * time.Second},
			{12 * time.Second, 6 * time.Second}, // a call alone: its deadline and a stall
			{9 * time.Second, 5 * time.Second},  // beside others: half of that
			{6 * time.Second, 5400 * time.Millisecond},
			{2 * time.Second, 5 * time.Second},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), tt.left)
			if got := r.patience(ctx); got != tt.want {
				t.Errorf("%v left: %v, want %v", tt.left, got, tt.want)
			}
			cancel()
		}
		if got := r.patience(t.Context()); got != 10*time.Second {
			t.Errorf("without an end: %v", got)
		}
	})
}
