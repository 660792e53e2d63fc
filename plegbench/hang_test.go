package plegbench

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

func TestMeasureOneHung(t *testing.T) {
	tests := []struct {
		name     string
		fault    fake.Fault
		want     string
		liveness int
	}{
		{"container", hang("ContainerStatus", fake.Object{Pod: "web-7"}), "Container web-7", 1},
		{"sandbox", hang("PodSandboxStatus", fake.Object{Pod: "web-7"}), "PodSandbox web-7", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := node(50, 0)
			s.Faults = []fake.Fault{tt.fault}
			s.Latency = []fake.Latency{{RPC: "*Status", Base: fake.Duration(10 * time.Millisecond)}}
			inBubble(t, s, rpcTimeout, Options{}, func(t *testing.T, m *Measurement) {
				if got := strings.Join(hungIDs(m), ", "); got != tt.want {
					t.Errorf("hung: %s, want %s", got, tt.want)
				}
				if m.Sweep.Reach != "all 100" || m.Stopped() || len(m.Liveness) != tt.liveness {
					t.Errorf("reach %q, stopped %v, %d liveness calls", m.Sweep.Reach, m.Stopped(), len(m.Liveness))
				}
				if got := took(m); got > rpcTimeout+time.Second {
					t.Errorf("took %v: the hung call delayed others", got)
				}
			})
		})
	}
}

func TestMeasureHungNeverDelaysTheRest(t *testing.T) {
	s := node(100, 0)
	s.Faults = []fake.Fault{hang("*Status", fake.Object{Pod: "web-9?"})}
	inBubble(t, s, rpcTimeout, Options{}, func(t *testing.T, m *Measurement) {
		if n := len(hungIDs(m)); n != 20 {
			t.Errorf("%d hung, want 20", n)
		}
		if m.Sweep.Reach != "all 200" || m.Stopped() {
			t.Errorf("reach %q, stopped %v", m.Sweep.Reach, m.Stopped())
		}
		// Twenty calls in four slots, a second each, and the deadline of the last.
		if got := took(m); got > 5*time.Second+rpcTimeout+time.Second {
			t.Errorf("took %v", got)
		}
	})
}

func TestMeasureAllHung(t *testing.T) {
	for _, state := range []crictl.ConnectState{crictl.ConnectSilent, crictl.ConnectOK} {
		t.Run(string(state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := node(20, 0)
				s.Faults = []fake.Fault{hang("*", fake.Object{})}
				client := serve(t, s, rpcTimeout)
				hinted := false
				m := Measure(t.Context(), "unix:///run/test.sock", client, Options{
					RPCTimeout: rpcTimeout,
					Hints:      func(context.Context) []Hint { hinted = true; return nil },
					Probe: func(ctx context.Context, _ string) crictl.Connect {
						if state == crictl.ConnectSilent {
							<-ctx.Done()
						}
						return crictl.Connect{State: state}
					},
				})
				if got := took(m); got > rpcTimeout+time.Second {
					t.Errorf("took %v, want one deadline", got)
				}
				for _, c := range m.Probes {
					if !c.Hung() {
						t.Errorf("%s: %s, want hung", c.Method, c.Code)
					}
				}
				if m.Connect.State != state || len(m.Probes) != 6 || len(m.Samples) != 1 || len(m.Sweep.Inspections) != 0 ||
					hinted {
					t.Errorf("connect %s, %d probes, %d samples, %d inspections, hints asked: %v",
						m.Connect.State, len(m.Probes), len(m.Samples), len(m.Sweep.Inspections), hinted)
				}
				if m.Interrupted != "" || m.Stopped() || m.Sweep.Reach != "nothing: without the lists, no sandbox or container is known" {
					t.Errorf("interrupted %q, stopped %v, reach %q", m.Interrupted, m.Stopped(), m.Sweep.Reach)
				}
			})
		})
	}
}

func TestMeasureFrozenInTheMiddle(t *testing.T) {
	tests := []struct {
		name   string
		from   time.Duration
		phase  string
		reach  string
		within time.Duration
	}{
		{
			"between two samples", 120 * time.Millisecond, "relist", "the runtime no longer answered",
			rpcTimeout + stallAfter,
		},
		{
			"in the sweep", 400 * time.Millisecond, "inspect", "the runtime no longer answered",
			rpcTimeout + stallAfter,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := node(100, 0)
			f := hang("*", fake.Object{})
			f.From = fake.Duration(tt.from)
			s.Faults = []fake.Fault{f}
			s.Latency = []fake.Latency{{RPC: "*Status", Base: fake.Duration(20 * time.Millisecond)}}
			last := ""
			opts := Options{Progress: func(p Progress) {
				if p.Done > 0 {
					last = p.Phase
				}
			}}
			inBubble(t, s, rpcTimeout, opts, func(t *testing.T, m *Measurement) {
				if !m.Stopped() || last != tt.phase || !strings.Contains(m.Sweep.Reach, tt.reach) {
					t.Errorf("stopped %v in phase %s, reach %q", m.Stopped(), last, m.Sweep.Reach)
				}
				if got := took(m); got > tt.from+tt.within+100*time.Millisecond {
					t.Errorf("took %v, want a deadline and a second after %v", got, tt.from)
				}
				if n := len(hungIDs(m)); n > concurrency {
					t.Errorf("%d calls sent into a runtime that stands still, want a slot each", n)
				}
				if m.Sandboxes == nil || len(m.Sandboxes.Sandboxes) != 100 || m.Containers == nil || m.Interrupted != "" {
					t.Errorf("the lists from before are lost, or interrupted: %q", m.Interrupted)
				}
			})
		})
	}
}

func TestMeasureListHang(t *testing.T) {
	// The holder of a container's status lock: every list of containers waits for it, and so does its own status.
	s := node(10, 0)
	s.Faults = []fake.Fault{hang("ListContainers", fake.Object{}), hang("ContainerStatus", fake.Object{Pod: "web-3"})}
	synctest.Test(t, func(t *testing.T) {
		client := serve(t, s, rpcTimeout)
		hints := hintsOf(t, s)
		m := Measure(t.Context(), "unix:///run/test.sock", client, Options{
			Probe: answers,
			Hints: func(context.Context) []Hint { return hints },
		})
		if m.Containers != nil || m.Sandboxes == nil || len(m.Samples) != 1 {
			t.Errorf("containers %v, sandboxes %v, %d samples", m.Containers, m.Sandboxes, len(m.Samples))
		}
		if m.Sweep.Reach != "all 20" { // ten listed sandboxes, ten hinted containers
			t.Errorf("reach %q", m.Sweep.Reach)
		}
		for _, i := range m.Sweep.Inspections {
			wantState, wantHung := "ready", i.Kind == KindContainer && i.Pod.Name == "web-3"
			if i.Kind == KindContainer {
				wantState = StateHinted
			}
			if i.State != wantState || i.Call.Hung() != wantHung {
				t.Errorf("%s of %s: %s, %s", i.Kind, i.Pod.Name, i.State, i.Call.Code)
			}
		}
		if got := took(m); got > 2*rpcTimeout+time.Second {
			t.Errorf("took %v", got)
		}
	})
}

// hintsOf lists the same scenario without its faults, as looking at the host would. Identifiers do not depend on
// faults.
func hintsOf(t *testing.T, s fake.Scenario) (hints []Hint) {
	t.Helper()
	s.Faults = nil
	client := serve(t, s, rpcTimeout)
	for _, c := range client.ListContainers(t.Context(), crictl.Filter{}, crictl.ModeUnary).Containers {
		hints = append(hints, Hint{Kind: KindContainer, ID: c.ID, Name: c.Name, Pod: *c.Pod},
			Hint{Kind: KindPodSandbox, ID: c.SandboxID, Pod: *c.Pod})
	}
	return hints
}

func TestMeasureHintsThatHang(t *testing.T) {
	s := node(2, 0)
	s.Faults = []fake.Fault{hang("ListContainers", fake.Object{})}
	opts := Options{Hints: func(ctx context.Context) []Hint {
		<-ctx.Done()
		time.Sleep(time.Second)
		return nil
	}}
	inBubble(t, s, rpcTimeout, opts, func(t *testing.T, m *Measurement) {
		if got := took(m); got != rpcTimeout+hintTime || m.Sweep.Reach != "all 2" {
			t.Errorf("took %v, reach %q", got, m.Sweep.Reach)
		}
		time.Sleep(time.Second) // what was left behind ends
	})
}
