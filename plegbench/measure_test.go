package plegbench

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// rpcTimeout is the deadline of the calls in these tests.
const rpcTimeout = 5 * time.Second

// inBubble measures a runtime in a synctest bubble, where waiting takes no time and every goroutine that Measure leaves
// behind fails the test.
func inBubble(t *testing.T, scenario fake.Scenario, timeout time.Duration, opts Options,
	check func(*testing.T, *Measurement),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := serve(t, scenario, timeout)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		opts.Probe = answers
		check(t, Measure(ctx, "unix:///run/test.sock", client, opts))
	})
}

func serve(t *testing.T, scenario fake.Scenario, timeout time.Duration) *crictl.Client {
	t.Helper()
	server, err := fake.New(scenario)
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	client, err := crictl.Dial("unix:///run/test.sock", crictl.Options{
		RPCTimeout: timeout,
		Dialer:     func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return client
}

func answers(context.Context, string) crictl.Connect {
	return crictl.Connect{State: crictl.ConnectOK}
}

// node is a runtime with so many pods of one running container each, and so many exited ones in one more pod.
func node(pods, exited int) fake.Scenario {
	s := fake.Scenario{
		Name: "test",
		Pods: []fake.PodGroup{
			{Name: "web", Count: pods, Containers: []fake.ContainerGroup{{Name: "app"}}},
		},
	}
	if exited > 0 {
		s.Pods = append(s.Pods, fake.PodGroup{
			Name: "crash", Containers: []fake.ContainerGroup{{Name: "app", State: "exited", Exited: exited - 1}},
		})
	}
	return s
}

func hang(rpc string, object fake.Object) fake.Fault {
	return fake.Fault{RPC: rpc, Object: object, Hang: true}
}

func hungIDs(m *Measurement) (ids []string) {
	for _, i := range m.Sweep.Inspections {
		if i.Call.Hung() {
			ids = append(ids, i.Kind+" "+i.Pod.Name)
		}
	}
	return ids
}

func took(m *Measurement) time.Duration { return m.Ended.Sub(m.Started) }

func TestMeasureHealthy(t *testing.T) {
	var phases []string
	var samples int
	opts := Options{
		Progress: func(p Progress) {
			if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
				phases = append(phases, p.Phase)
			}
		},
		OnSample: func(Sample) { samples++ },
	}
	inBubble(t, node(20, 3), rpcTimeout, opts, func(t *testing.T, m *Measurement) {
		if got, want := strings.Join(phases, " "), "connect probe relist inspect"; got != want {
			t.Errorf("phases %q, want %q", got, want)
		}
		if samples != 5 || len(m.Samples) != 5 {
			t.Errorf("%d samples told of, %d kept; want 5", samples, len(m.Samples))
		}
		for i, c := range m.Probes {
			if want := rpcsAsked[i]; c.Method != want || !c.OK() {
				t.Errorf("probe %d: %s %s %s, want %s OK", i, c.Method, c.Code, c.Err, want)
			}
		}
		if len(m.Probes) != len(rpcsAsked) {
			t.Errorf("%d probes, want %d", len(m.Probes), len(rpcsAsked))
		}
		if m.Sweep.Reach != "all 44" || len(m.Sweep.Inspections) != 44 || m.Sweep.Total != 44 {
			t.Errorf("sweep of %d of %d: %q", len(m.Sweep.Inspections), m.Sweep.Total, m.Sweep.Reach)
		}
		for _, i := range m.Sweep.Inspections {
			if !i.Call.OK() {
				t.Errorf("%s %s: %s %s", i.Kind, i.ID, i.Call.Code, i.Call.Err)
			}
		}
		if m.Interrupted != "" || len(m.Liveness) != 0 || len(m.ChangedPods) != 0 || m.Version == nil || m.Status == nil {
			t.Errorf("interrupted %q, liveness %v, changed %v, version %v", m.Interrupted, m.Liveness, m.ChangedPods, m.Version)
		}
		if got := took(m); got != 4*defaultPause {
			t.Errorf("took %v, want only the pauses", got)
		}
	})
}

// rpcsAsked is what Measurement.Probes holds.
var rpcsAsked = [...]string{"Version", "Status", "ListPodSandbox", "ListContainers", "ListImages", "ImageFsInfo"}

func TestMeasureClosedSocket(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		t.Run(fmt.Sprint(delay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := node(1, 0)
				s.Faults = []fake.Fault{hang("*", fake.Object{})}
				client := serve(t, s, rpcTimeout)
				m := Measure(t.Context(), "unix:///run/test.sock", client, Options{
					Probe: func(context.Context, string) crictl.Connect {
						time.Sleep(delay)
						return crictl.Connect{State: crictl.ConnectRefused}
					},
				})
				if m.Connect.State != crictl.ConnectRefused || took(m) != delay || m.Probes != nil || m.Samples != nil {
					t.Errorf("%s after %v, %d probes", m.Connect.State, took(m), len(m.Probes))
				}
			})
		})
	}
}

// Whoever refuses every call is asked no more, even where the host knows containers.
func TestMeasureRefusals(t *testing.T) {
	for _, answer := range []string{
		"Unavailable: server is not initialized yet",
		"Unimplemented: unknown service runtime.v1.RuntimeService",
	} {
		code, _, _ := strings.Cut(answer, ":")
		t.Run(code, func(t *testing.T) {
			s := node(2, 0)
			s.Faults = []fake.Fault{{RPC: "*", Error: answer}}
			opts := Options{Hints: func(context.Context) []Hint { return []Hint{{Kind: KindContainer, ID: "c"}} }}
			inBubble(t, s, rpcTimeout, opts, func(t *testing.T, m *Measurement) {
				want := "nothing: without the lists, no sandbox or container is known"
				if len(m.Samples) != 1 || len(m.Probes) != 6 || m.Sweep.Reach != want || took(m) != 0 || m.Interrupted != "" {
					t.Errorf("%d samples, %d probes, reach %q, want %q", len(m.Samples), len(m.Probes), m.Sweep.Reach, want)
				}
			})
		})
	}
}

func TestMeasureRemovedMeanwhile(t *testing.T) {
	s := node(5, 0)
	s.Faults = []fake.Fault{{
		RPC: "ContainerStatus", Object: fake.Object{Pod: "web-2"},
		Error: "NotFound: no such container",
	}}
	inBubble(t, s, rpcTimeout, Options{}, func(t *testing.T, m *Measurement) {
		sweep := Summarize(m, nil).Sweep
		if sweep.Failed != 0 || sweep.Hung != 0 || sweep.Inspected != 10 || m.Sweep.Reach != "all 10" {
			t.Errorf("%+v", sweep)
		}
	})
}
