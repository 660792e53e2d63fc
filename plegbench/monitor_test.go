package plegbench

import (
	"context"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
)

// A beat is a Monitor of an embedded runtime in a synctest bubble, and what the runtime saw of its calls.
type beat struct {
	*Monitor
	start time.Time
	dial  crictl.Dialer
	done  map[string]int // the calls that hung, failed or came late, by when Done was called
	hints func() []Hint

	mu    sync.Mutex
	conns []net.Conn
	out   map[callKey]int // at the runtime
	asked map[callKey]int // so far
	most  map[string]int  // out at a time, of one key; and of all status calls
}

// watch runs a test with a Monitor that looks each 30 s and sweeps in five minutes.
func watch(t *testing.T, s fake.Scenario, change func(*MonitorOptions), test func(*testing.T, *beat)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &beat{start: time.Now(), out: map[callKey]int{}, asked: map[callKey]int{}, most: map[string]int{}}
		b.hints, b.done = func() []Hint { return nil }, map[string]int{}
		b.dial = faketest.ServeWatched(t, s, b.call)
		client, err := crictl.Dial("unix:///run/test.sock", crictl.Options{
			Dialer: func(ctx context.Context, path string) (net.Conn, error) {
				conn, err := b.dial(ctx, path)
				b.conns = append(b.conns, conn)
				return conn, err
			},
		})
		testkit.Must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		opts := MonitorOptions{
			RPCTimeout: 5 * time.Second, Interval: 30 * time.Second, Sweep: 5 * time.Minute,
			Probe: probed(crictl.ConnectOK, 0), Hints: func(context.Context) []Hint { return b.hints() },
			Done: func(c crictl.Call) {
				if !c.OK() || c.Elapsed > 6*time.Second {
					b.done[fmt.Sprint(time.Since(b.start).Round(time.Second), " ", c.Method, " ", c.Code)]++
				}
			},
		}
		if change != nil {
			change(&opts)
		}
		b.Monitor = NewMonitor("unix:///run/test.sock", client, opts)
		b.measure.Shuffle = func(int, func(i, j int)) {}
		test(t, b)
		b.Close()
		synctest.Wait()
		testkit.Equal(t, "calls of one RPC and object at a time", 1, max(1, b.most["key"]))
		if b.most["statuses"] > maxOutstanding {
			t.Errorf("%d status calls at a time", b.most["statuses"])
		}
	})
}

// call counts a call at the runtime.
func (b *beat) call(rpc, id string) func() {
	k := callKey{rpc, id}
	count := func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.out[k] += n
		b.asked[k] += max(n, 0)
		statuses := 0
		for k, n := range b.out {
			if k.object != "" {
				statuses += n
			}
		}
		b.most["key"], b.most["statuses"] = max(b.most["key"], b.out[k]), max(b.most["statuses"], statuses)
	}
	count(1)
	return func() { count(-1) }
}

// each looks each 30 s for a time, from the next half minute on.
func (b *beat) each(t *testing.T, length time.Duration, take func(*Measurement)) {
	t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); {
		take(b.Poll(t.Context(), false))
		time.Sleep(30*time.Second - time.Since(b.start)%(30*time.Second))
	}
}

// timeline returns what looks find when that changes.
func (b *beat) timeline(t *testing.T, length time.Duration) (lines []string) {
	last := ""
	b.each(t, length, func(m *Measurement) {
		_, what, _ := strings.Cut(outcome(m), ", ")
		if what != last {
			lines = append(lines, fmt.Sprintf("%v %s", m.Started.Sub(b.start), outcome(m)))
		}
		last = what
	})
	return lines
}

// until is a hang from one time to another, in which calls that hung go on at its end.
func until(rpc, pod string, from, until time.Duration) fake.Fault {
	f := hang(rpc, pod)
	f.From, f.Until, f.Thaw = fake.Duration(from), fake.Duration(until), true
	return f
}

const nothing = "swept nothing: without the lists, no sandbox or container is known"

func TestMonitor(t *testing.T) {
	from, to := 10*time.Minute+time.Second, 40*time.Minute+10*time.Second
	const all, found = "0s 0s, 1 samples, 44 listed; swept all 44", "40m30s 0s, 1 samples, 44 listed; swept all 44"
	for _, tt := range []struct {
		name     string
		scenario fake.Scenario
		cut      time.Duration // when the connection breaks; 0 for never
		// what the looks of an hour find when that changes, and the calls that hung, failed or came late
		want []string
	}{
		{name: "healthy", scenario: node(20, 60), want: []string{"0s 0s, 1 samples, 101 listed; swept all 101"}},
		{
			name:     "one container hangs and comes back",
			scenario: node(20, 3, until("ContainerStatus", "web-7", from, to)),
			want: []string{
				all, "13m0s 5s, 1 samples, 44 listed, liveness OK; swept all 44, 1 hung: Container web-7",
				"13m30s 0s, 1 samples, 44 listed; swept all 44, 1 hung: Container web-7", found,
				"13m5s ContainerStatus DeadlineExceeded x1", "40m30s ContainerStatus OK x1",
			},
		},
		{
			name:     "frozen in a look",
			scenario: slow(node(20, 3, until("*", "", from+29*time.Second+50*ms, to)), "*", 80*ms),
			want: []string{
				"0s 960ms, 1 samples, 44 listed; swept all 44",
				"10m30s 6.08s, 1 samples, 44 listed, liveness DeadlineExceeded; swept 4 of 44: " +
					"the runtime no longer answered anything, Version included, 4 hung; stopped",
				"11m0s 5s, 1 samples, 1 of them hung; swept all 4, 4 hung",
				"40m30s 320ms, 1 samples, 44 listed; swept all 44",
				"10m36s PodSandboxStatus DeadlineExceeded x4", "10m36s Version DeadlineExceeded x1",
				"11m5s ListContainers DeadlineExceeded x1", "11m5s ListPodSandbox DeadlineExceeded x1",
				"11m5s Status DeadlineExceeded x1", "40m30s ListContainers OK x1", "40m30s ListPodSandbox OK x1",
				"40m30s PodSandboxStatus OK x4", "40m30s Status OK x1", "40m30s Version OK x1",
			},
		},
		{
			name: "all statuses hang", scenario: node(60, 3, until("*Status", "*", from, to)),
			want: []string{
				"0s 0s, 1 samples, 124 listed; swept all 124",
				"10m30s 16s, 1 samples, 124 listed, liveness OK; swept 32 of 124: 32 calls were not answered, 32 hung",
				"11m0s 0s, 1 samples, 124 listed; swept 32 of 124: 32 calls were not answered, 32 hung",
				"40m30s 0s, 1 samples, 124 listed; swept all 124",
				"10m37s PodSandboxStatus DeadlineExceeded x12", "10m46s PodSandboxStatus DeadlineExceeded x20",
				"40m30s PodSandboxStatus OK x32",
			},
		},
		{
			name: "restarted while one container hangs from the first look on", cut: to,
			scenario: node(20, 3, fake.Fault{
				RPC: "ContainerStatus", Object: fake.Object{Pod: "web-7"}, Hang: true, Until: fake.Duration(to),
			}),
			want: []string{
				"0s 5s, 1 samples, 44 listed, liveness OK; swept all 44, 1 hung: Container web-7",
				"30s 0s, 1 samples, 44 listed; swept all 44, 1 hung: Container web-7", found,
				"40m30s ContainerStatus Unavailable x1", "5s ContainerStatus DeadlineExceeded x1",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			watch(t, tt.scenario, nil, func(t *testing.T, b *beat) {
				if tt.cut > 0 {
					time.AfterFunc(tt.cut, func() { _ = b.conns[0].Close() })
				}
				got := b.timeline(t, time.Hour)
				for _, what := range slices.Sorted(maps.Keys(b.done)) {
					got = append(got, fmt.Sprintf("%s x%d", what, b.done[what]))
				}
				testkit.Equal(t, "looks and calls", tt.want, got)
			})
		})
	}
}

// TestMonitorTakesTurns counts what the runtime is asked in an hour after the first look: each object once in five
// minutes, evenly, and the image service as often.
func TestMonitorTakesTurns(t *testing.T) {
	watch(t, node(20, 60), nil, func(t *testing.T, b *beat) {
		b.each(t, 30*time.Second, func(*Measurement) {})
		clear(b.asked)
		least, most := 100, 0
		b.each(t, time.Hour, func(m *Measurement) { least, most = min(least, m.asked()), max(most, m.asked()) })
		want := map[string]int{
			"Version": 120, "Status": 120, "ListPodSandbox": 120, "ListContainers": 120, "ListImages": 12,
			"ImageFsInfo": 12, "PodSandboxStatus": 12, "ContainerStatus": 12,
		}
		got := map[string]int{}
		for k, n := range b.asked {
			if got[k.method] = n; n != want[k.method] {
				t.Errorf("%v: %d times, want %d", k, n, want[k.method])
			}
		}
		testkit.Equal(t, "calls", want, got)
		testkit.Equal(t, "status calls in a look, of 101 objects in ten", []int{10, 11}, []int{least, most})
	})
}

// asked counts the status calls that were made for the measurement, and not remembered.
func (m *Measurement) asked() (n int) {
	for _, i := range m.Sweep.Inspections {
		if !i.Call.Start.Before(m.Started) {
			n++
		}
	}
	return n
}

// TestMonitorClosely has a closer look ask about all that runs, and about so many exited ones.
func TestMonitorClosely(t *testing.T) {
	watch(t, node(20, 400), nil, func(t *testing.T, b *beat) {
		for _, want := range []int{135, 44, 44, 135} { // of 441 objects 91 are musts, and a tenth comes in turn
			testkit.Equal(t, "asked", want, b.Poll(t.Context(), want == 135).asked())
			time.Sleep(30 * time.Second)
		}
	})
}

// TestMonitorProbesOnce has a stopped daemon: it accepts no connection, so each more would stay in its listen queue.
func TestMonitorProbesOnce(t *testing.T) {
	var start time.Time
	probes := map[crictl.ConnectState]int{}
	probe := func(ctx context.Context, _ string) crictl.Connect {
		c := crictl.Connect{State: crictl.ConnectOK}
		if now := time.Since(start); now > 50*time.Second && now < 1190*time.Second {
			<-ctx.Done()
			c.State = crictl.ConnectSilent
		}
		probes[c.State]++
		return c
	}
	frozen := until("*", "", 50*time.Second, 1190*time.Second)
	watch(t, node(3, 0, frozen), func(o *MonitorOptions) { o.Probe = probe }, func(t *testing.T, b *beat) {
		start = b.start
		silent := 0
		b.each(t, 30*time.Minute, func(m *Measurement) {
			if m.Connect.State == crictl.ConnectSilent {
				silent++
			}
		})
		want := map[crictl.ConnectState]int{crictl.ConnectOK: 22, crictl.ConnectSilent: 1}
		testkit.Equal(t, "probes", want, probes)
		testkit.Equal(t, "looks that find it silent", 38, silent)
	})
}

// TestMonitorHints has a list that hangs: what the host knows is asked about instead. A search that hangs is not begun
// again.
func TestMonitorHints(t *testing.T) {
	faults := []fake.Fault{hang("ListContainers", ""), hang("ContainerStatus", "web-3")}
	faults[0].From, faults[1].From = fake.Duration(time.Minute), fake.Duration(time.Minute)
	watch(t, node(10, 0, faults...), nil, func(t *testing.T, b *beat) {
		var known []Hint
		b.hints = func() []Hint { return known }
		b.each(t, time.Minute, func(m *Measurement) {
			known = nil
			for _, c := range m.Containers.Containers {
				known = append(known, Hint{Kind: KindContainer, ID: c.ID, Name: c.Name, Pod: *c.Pod})
			}
		})
		got := b.timeline(t, 10*time.Minute)
		var searches atomic.Int32
		goOn := make(chan bool)
		b.hints = func() []Hint {
			searches.Add(1)
			<-goOn
			return nil
		}
		got = append(got, b.timeline(t, 10*time.Minute)...)
		close(goOn)
		const one = "1 samples, 1 of them hung, 10 listed"
		want := []string{
			"1m0s 15s, " + one + ", liveness OK; swept all 20, 1 hung: Container web-3",
			"1m30s 0s, " + one + "; swept all 20, 1 hung: Container web-3",
			"11m0s 2s, " + one + "; swept all 11, 1 hung: Container web-3",
		}
		testkit.Equal(t, "looks", want, got)
		testkit.Equal(t, "searches that hang", int32(1), searches.Load())
	})
}

// TestMonitorInterrupted has looks that end before the calls do, which then go on.
func TestMonitorInterrupted(t *testing.T) {
	watch(t, slow(node(3, 0), "*", 3*time.Second), nil, func(t *testing.T, b *beat) {
		var got []string
		for _, d := range []time.Duration{time.Second, 8 * time.Second, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			got = append(got, outcome(b.Poll(ctx, false)))
			cancel()
		}
		up := "; " + timeUp
		want := []string{
			"900ms, 1 samples; " + nothing + up,
			"7.5s, 1 samples, 6 listed, liveness Canceled; swept 0 of 6: each is asked about once in 5m0s" + up,
			"10.6s, 1 samples, 6 listed; swept all 6",
		}
		testkit.Equal(t, "looks", want, got)
	})
}

// TestMonitorChurn has a pod come and another go between looks for a week, in which the daemon stands still each day.
func TestMonitorChurn(t *testing.T) {
	frozen := hang("[LV]*", "") // Version and the lists
	frozen.Thaw, frozen.From, frozen.Every, frozen.For = true, fake.Duration(7*time.Hour+time.Second),
		fake.Duration(24*time.Hour), fake.Duration(time.Hour)
	slower := func(o *MonitorOptions) { o.Interval, o.Sweep = 30*time.Minute, 5*time.Hour }
	watch(t, node(5, 5, frozen), slower, func(t *testing.T, b *beat) {
		conn, err := crictl.NewConn("unix:///run/test.sock", b.dial)
		testkit.Must(t, err)
		defer conn.Close()
		pods := runtimeapi.NewRuntimeServiceClient(conn)
		before, looks, hung, ids := 0, 0, 0, []string{"", ""}
		for end := time.Now().Add(7 * 24 * time.Hour); time.Now().Before(end); looks++ {
			made, err := pods.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
				Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{
					Name: "job", Namespace: "batch", Uid: fmt.Sprint(looks),
				}},
			})
			testkit.Must(t, err)
			ids = append(ids, made.GetPodSandboxId())
			stopped, older := ids[looks+1], ids[looks]
			_, _ = pods.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: stopped})
			_, _ = pods.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: older})
			m := b.Poll(t.Context(), false)
			if !m.Samples[0].OK() {
				hung++
			} else if looks > 1 && len(m.ChangedPods) != 1 {
				t.Fatalf("look %d: %v changed, %s", looks, m.ChangedPods, outcome(m))
			}
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			if looks == 0 {
				before = runtime.NumGoroutine()
			}
		}
		// Finalizers may run in one more. A leak leaves one for each day.
		if n := runtime.NumGoroutine(); n > before+2 || len(b.known) != 18 || len(b.calls) > 0 || hung < 7 {
			t.Errorf("%d goroutines, %d at first; %d known, %d held, %d looks hung", n, before, len(b.known),
				len(b.calls), hung)
		}
	})
}
