package plegbench

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

func TestMeasureVerySlowListsLeaveTimeForTheSweep(t *testing.T) {
	s := node(3, 0)
	s.Latency = []fake.Latency{{RPC: "List*", Base: fake.Duration(3 * time.Second)}}
	inBubble(t, s, rpcTimeout, Options{}, func(t *testing.T, m *Measurement) {
		if n := len(m.Samples); n != 2 || m.Sweep.Reach != "all 6" || m.Interrupted != "" {
			t.Errorf("%d samples, reach %q, interrupted %q", n, m.Sweep.Reach, m.Interrupted)
		}
	})
}

// TestMeasureRecord is the same node, asked for a whole series.
func TestMeasureRecord(t *testing.T) {
	s := node(3, 0)
	s.Latency = []fake.Latency{{RPC: "List*", Base: fake.Duration(3 * time.Second)}}
	inBubble(t, s, rpcTimeout, Options{Samples: 4, Record: true}, func(t *testing.T, m *Measurement) {
		if n := len(m.Samples); n != 4 || m.Sweep.Reach != "all 6" || m.Interrupted != "" {
			t.Errorf("%d samples, reach %q, interrupted %q", n, m.Sweep.Reach, m.Interrupted)
		}
	})
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
	tests := []struct {
		name     string
		scenario fake.Scenario
		complete bool
		listed   int
	}{
		{"filtered lists stand in", spread, true, 320},
		{"streams stand in", streamed, true, 320},
		{"one sandbox is too large by itself", inOnePod, false, 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.scenario, rpcTimeout, Options{}, func(t *testing.T, m *Measurement) {
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
				if sum.ResponseRPC != "ListContainers" || sum.ResponseTruncated || *sum.ResponseBytes < 250_000 {
					t.Errorf("response of %s, %d bytes, truncated %v", sum.ResponseRPC, *sum.ResponseBytes, sum.ResponseTruncated)
				}
				if (sum.Containers != nil) != tt.complete {
					t.Errorf("counts %v of a list that is complete: %v", sum.Containers, tt.complete)
				}
			})
		})
	}
}

func TestMeasureStreaming(t *testing.T) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprint(streams), func(t *testing.T) {
			s := node(5, 0)
			s.Streaming = streams
			want := crictl.ModeUnary
			if streams {
				want = crictl.ModeStream
			}
			inBubble(t, s, rpcTimeout, Options{Streaming: true}, func(t *testing.T, m *Measurement) {
				for i, sample := range m.Samples {
					if sample.Mode != want || !sample.OK() {
						t.Errorf("sample %d: %s %s %s", i, sample.Mode, sample.Sandboxes.Code, sample.Containers.Code)
					}
				}
				if len(m.Samples) != 5 || len(m.Containers.Containers) != 5 {
					t.Errorf("%d samples", len(m.Samples))
				}
			})
		})
	}
}

func TestMeasureSeries(t *testing.T) {
	hungLists := hang("ListPodSandbox", fake.Object{})
	hungLists.From = fake.Duration(time.Second)
	hungLists.Until = fake.Duration(20 * time.Second)
	tests := []struct {
		name   string
		faults []fake.Fault
		opts   Options
		want   int
		hung   int
	}{
		{"for", nil, Options{For: 10 * time.Second, Pause: time.Second, NoSweep: true}, 10, 0},
		{"for, bounded by samples", nil, Options{For: 10 * time.Second, Pause: time.Second, Samples: 3, NoSweep: true}, 3, 0},
		{"many samples", nil, Options{Samples: 25, NoSweep: true}, 25, 0},
		{
			"a small series stops after two hung",
			[]fake.Fault{hungLists},
			Options{Samples: 10, Pause: 500 * time.Millisecond},
			4, 2,
		},
		{"a long one goes on", []fake.Fault{hungLists}, Options{Samples: 12, Record: true, Pause: 500 * time.Millisecond}, 12, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := node(3, 0)
				s.Faults = tt.faults
				client := serve(t, s, rpcTimeout)
				tt.opts.Probe = answers
				m := Measure(t.Context(), "unix:///run/test.sock", client, tt.opts)
				hung := 0
				for _, s := range m.Samples {
					if hungSample(s) {
						hung++
					}
				}
				if len(m.Samples) != tt.want || hung != tt.hung || m.Interrupted != "" {
					t.Errorf("%d samples, %d of them hung; want %d and %d; interrupted %q", len(m.Samples), hung, tt.want, tt.hung,
						m.Interrupted)
				}
			})
		})
	}
}
