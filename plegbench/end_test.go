package plegbench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// signaled is a cause of the kind that os/signal gives.
type signaled string

func (s signaled) Error() string        { return string(s) }
func (s signaled) Is(target error) bool { return target == context.Canceled }

func TestMeasureCancel(t *testing.T) {
	reason := signaled("interrupt signal received")
	tests := []struct {
		name  string
		at    time.Duration
		cause error
		want  string
		check func(*testing.T, *Measurement)
	}{
		{"while probing", 50 * time.Millisecond, nil, "interrupted", func(t *testing.T, m *Measurement) {
			if len(m.Probes) != 6 || m.Probes[0].Code != crictl.Canceled {
				t.Errorf("probes %v", m.Probes)
			}
		}},
		{"while sampling", 450 * time.Millisecond, reason, "interrupted", func(t *testing.T, m *Measurement) {
			if m.Sandboxes == nil || m.Samples[0].Containers.Items != 100 {
				t.Error("the first sample is lost")
			}
		}},
		{"while sweeping", 2500 * time.Millisecond, reason, "interrupted", func(t *testing.T, m *Measurement) {
			want := "of 200: " + "interrupted"
			if len(m.Samples) != 5 || !strings.HasSuffix(m.Sweep.Reach, want) || len(m.Sweep.Inspections) == 0 {
				t.Errorf("%d samples, reach %q, want ...%q", len(m.Samples), m.Sweep.Reach, want)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := node(100, 0)
				s.Latency = []fake.Latency{{RPC: "*", Base: fake.Duration(200 * time.Millisecond)}}
				client := serve(t, s, rpcTimeout)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(tt.at, func() { cancel(tt.cause) })
				m := Measure(ctx, "unix:///run/test.sock", client, Options{Probe: answers})
				if m.Interrupted != tt.want || took(m) != tt.at {
					t.Errorf("interrupted %q after %v, want %q after %v", m.Interrupted, took(m), tt.want, tt.at)
				}
				for _, c := range append(m.Probes, m.Liveness...) {
					if c.Hung() {
						t.Errorf("%s counts as hung", c.Method)
					}
				}
				tt.check(t, m)
			})
		})
	}
}

func TestMeasureDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := node(100, 0)
		s.Latency = []fake.Latency{{RPC: "ContainerStatus", Base: fake.Duration(2 * time.Second)}}
		client := serve(t, s, rpcTimeout)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		m := Measure(ctx, "unix:///run/test.sock", client, Options{Probe: answers})
		if got := took(m); got != 9500*time.Millisecond {
			t.Errorf("took %v, want the deadline less the margin", got)
		}
		if m.Interrupted != errTimeUp.Error() {
			t.Errorf("interrupted %q", m.Interrupted)
		}
	})
}

// All musts are under way when the time is up: none is known to hang, and the measurement is not whole.
func TestMeasureDeadlineWithAllAsked(t *testing.T) {
	s := node(2, 0)
	s.Faults = []fake.Fault{hang("ContainerStatus", fake.Object{})}
	inBubble(t, s, time.Minute, Options{}, func(t *testing.T, m *Measurement) {
		want := "2 of 4: " + errTimeUp.Error()
		if m.Sweep.Reach != want || m.Interrupted != errTimeUp.Error() || len(hungIDs(m)) != 0 {
			t.Errorf("reach %q, want %q; interrupted %q", m.Sweep.Reach, want, m.Interrupted)
		}
	})
}

func TestMeasureBudgetAndDeep(t *testing.T) {
	tests := []struct {
		name  string
		opts  Options
		base  time.Duration
		reach string
	}{
		{"budget", Options{}, 100 * time.Millisecond, "400 of 1020: all running first, then as far as 10s went"},
		{"musts go past the budget", Options{}, time.Second, "69 of 1020: all running first, then as far as 10s went"},
		{"deep", Options{Deep: true}, 20 * time.Millisecond, "all 1020"},
		{
			"deep until the end",
			Options{Deep: true},
			200 * time.Millisecond,
			"580 of 1020: all running first, then as far as the time went",
		},
		{"none", Options{NoSweep: true}, 0, "not asked for"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := node(9, 1001)
			s.Latency = []fake.Latency{{RPC: "*Status", Base: fake.Duration(tt.base)}}
			inBubble(t, s, rpcTimeout, tt.opts, func(t *testing.T, m *Measurement) {
				if m.Sweep.Reach != tt.reach || m.Interrupted != "" {
					t.Errorf("reach %q, want %q; interrupted %q", m.Sweep.Reach, tt.reach, m.Interrupted)
				}
			})
		})
	}
}

func TestMeasureTooManyOutstanding(t *testing.T) {
	s := node(60, 0)
	s.Faults = []fake.Fault{hang("ContainerStatus", fake.Object{})}
	for _, timeout := range []time.Duration{rpcTimeout, time.Minute} {
		t.Run(fmt.Sprint(timeout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := serve(t, s, timeout)
				m := Measure(t.Context(), "unix:///run/test.sock", client, Options{Probe: answers})
				if n := len(hungIDs(m)); n != maxOutstanding {
					t.Errorf("%d hung, want %d", n, maxOutstanding)
				}
				want := "92 of 120: 32 calls were not answered"
				if m.Sweep.Reach != want || m.Stopped() {
					t.Errorf("reach %q, want %q; stopped %v", m.Sweep.Reach, want, m.Stopped())
				}
				if got := took(m); got > timeout+8*time.Second {
					t.Errorf("took %v", got)
				}
			})
		})
	}
}
