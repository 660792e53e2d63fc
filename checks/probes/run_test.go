package probes

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

// memoryLook and clockLook are probes that a test supplies.
func memoryLook(after []string, read func(context.Context, facts.Node) (host.Memory, error)) Probe {
	return probe(Probe{ID: "memory", Limit: 2 * time.Second, After: after},
		func(n *facts.Node) *facts.Reading[host.Memory] { return &n.Memory },
		func(ctx context.Context, _ *Input, seen facts.Node) (host.Memory, error) { return read(ctx, seen) })
}

func clockLook(read func(context.Context) (host.Clock, error)) Probe {
	return probe(Probe{ID: "clock", Limit: 2 * time.Second},
		func(n *facts.Node) *facts.Reading[host.Clock] { return &n.Clock },
		func(ctx context.Context, _ *Input, _ facts.Node) (host.Clock, error) { return read(ctx) })
}

func everything(Probe) bool { return true }

func TestRun(t *testing.T) {
	fine := func(context.Context) (host.Clock, error) { return host.Clock{Synchronised: true}, nil }
	tests := []struct {
		name  string
		clock func(context.Context) (host.Clock, error)
		want  facts.Reading[host.Clock]
		hung  []string
	}{
		{"found", fine, facts.Reading[host.Clock]{Value: host.Clock{Synchronised: true}, OK: true}, nil},
		{
			"a part", func(context.Context) (host.Clock, error) {
				return host.Clock{MaxError: 1},
					errors.New("no permission")
			},
			facts.Reading[host.Clock]{Value: host.Clock{MaxError: 1}, Missing: "no permission"},
			nil,
		},
		{
			"does not apply", func(context.Context) (host.Clock, error) { return host.Clock{}, skip{"none here"} },
			facts.Reading[host.Clock]{Skipped: true, Missing: "none here"},
			nil,
		},
		{
			"panics", func(context.Context) (host.Clock, error) { panic("boom") },
			facts.Reading[host.Clock]{Missing: "kdiag's own fault: boom"},
			nil,
		},
		{
			"late", func(ctx context.Context) (host.Clock, error) {
				<-ctx.Done()
				time.Sleep(time.Second)
				return fine(ctx)
			},
			facts.Reading[host.Clock]{Hung: true, Missing: "outstanding for 2s", Took: 2 * time.Second},
			[]string{"clock"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := run(t.Context(), []Probe{clockLook(tt.clock)}, Input{}, everything)
				if diff := cmp.Diff(tt.want, n.Clock); diff != "" {
					t.Error(diff)
				}
				if !slices.Equal(n.Hung, tt.hung) {
					t.Errorf("hung %v, want %v", n.Hung, tt.hung)
				}
				time.Sleep(time.Second) // what is late ends within the bubble
			})
		})
	}
}

// TestRunKeeps has what walks left out where that may be: what it found before stays, and others read anew.
func TestRunKeeps(t *testing.T) {
	walking := clockLook(func(context.Context) (host.Clock, error) { return host.Clock{MaxError: 2}, nil })
	walking.Walks = true
	other := memoryLook(nil, func(context.Context, facts.Node) (host.Memory, error) { return host.Memory{Total: 2}, nil })
	before := &facts.Node{Hung: []string{"clock", "memory"}}
	before.Clock.Value.MaxError, before.Memory.Value.Total = 1, 1
	for _, tt := range []struct {
		before *facts.Node
		walks  bool
		want   time.Duration
		hung   []string
	}{
		{nil, false, 2, nil},
		{before, true, 2, nil},
		{before, false, 1, []string{"clock"}},
	} {
		in := Input{Before: tt.before, Walks: func() bool { return tt.walks }}
		n := run(t.Context(), []Probe{walking, other}, in, everything)
		if n.Clock.Value.MaxError != tt.want || n.Memory.Value.Total != 2 || !slices.Equal(n.Hung, tt.hung) {
			t.Errorf("%+v: clock %+v, memory %+v, hung %v", tt, n.Clock, n.Memory, n.Hung)
		}
	}
}

// TestRunDepends checks that a probe sees what those before it found, and does not wait for ever when they hang.
func TestRunDepends(t *testing.T) {
	for _, hang := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			clock := clockLook(func(context.Context) (host.Clock, error) {
				time.Sleep(hang)
				return host.Clock{MaxError: 7}, nil
			})
			var saw facts.Reading[host.Clock]
			memory := memoryLook([]string{"clock"}, func(_ context.Context, seen facts.Node) (host.Memory, error) {
				saw = seen.Clock
				return host.Memory{Total: 1}, nil
			})
			began := time.Now()
			n := run(t.Context(), []Probe{memory, clock}, Input{}, everything)
			if !n.Memory.OK || saw.OK != (hang < 2*time.Second) || saw.Hung == saw.OK {
				t.Errorf("clock hangs %v: memory %+v saw %+v", hang, n.Memory, saw)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			time.Sleep(hang)
		})
	}
}

// TestRunEnds checks that the end of the context ends every probe, also one that waits for another.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release := make(chan struct{})
		clock := clockLook(func(context.Context) (host.Clock, error) { <-release; return host.Clock{}, nil })
		memory := memoryLook([]string{"clock"}, func(ctx context.Context, _ facts.Node) (host.Memory, error) {
			<-ctx.Done()
			<-release
			return host.Memory{}, nil
		})
		began := time.Now()
		n := run(ctx, []Probe{clock, memory}, Input{}, everything)
		if took := time.Since(began); took != time.Second || !n.Clock.Hung || n.Memory.Hung || n.Memory.OK {
			t.Errorf("after %v: clock %+v, memory %+v; want the one that had a second to hang, and not the other",
				took, n.Clock, n.Memory)
		}
		close(release)
	})
}

// TestRunInterrupted checks that a look that the command's end cuts short is not called hung.
func TestRunInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		clock := clockLook(func(context.Context) (host.Clock, error) { <-release; return host.Clock{}, nil })
		time.AfterFunc(300*time.Millisecond, cancel)
		n := run(ctx, []Probe{clock}, Input{}, everything)
		want := facts.Reading[host.Clock]{Missing: "the command ended first", Took: 300 * time.Millisecond}
		if diff := cmp.Diff(want, n.Clock); diff != "" || len(n.Hung) > 0 {
			t.Errorf("hung %v, clock (-want +got):\n%s", n.Hung, diff)
		}
		close(release)
	})
}

// TestRunHandsIn checks that what a look returns when its context ends is kept.
func TestRunHandsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clockLook(func(ctx context.Context) (host.Clock, error) {
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond)
			return host.Clock{MaxError: 1}, ctx.Err()
		})
		n := run(t.Context(), []Probe{clock}, Input{}, everything)
		if n.Clock.Value.MaxError != 1 || n.Clock.Hung {
			t.Errorf("clock %+v", n.Clock)
		}
	})
}

// TestRunLeavesOut checks that what the command leaves out is skipped, with the reason.
func TestRunLeavesOut(t *testing.T) {
	n := run(t.Context(), []Probe{clockLook(nil)}, Input{}, func(Probe) bool { return false })
	if !n.Clock.Skipped || n.Clock.Missing == "" || n.Clock.OK {
		t.Errorf("%+v", n.Clock)
	}
}

// TestProbes checks that docs/checks.md describes each probe with its limit, and that each waits for probes that exist
// and do not wait for it.
func TestProbes(t *testing.T) {
	doc, err := os.ReadFile("../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, looks, _ := strings.Cut(string(doc), "\n# Looks\n")
	after := map[string][]string{}
	for _, p := range Probes() {
		if _, twice := after[p.ID]; twice {
			t.Errorf("%s is there twice", p.ID)
		}
		after[p.ID] = p.After
		_, text, found := strings.Cut(looks, "\n## "+p.ID+"\n\n")
		text, _, _ = strings.Cut(text, "\n\n")
		if !found || !strings.Contains(text, "Left behind after "+p.Limit.String()) {
			t.Errorf("docs/checks.md describes %s so: %q", p.ID, text)
		}
	}
	var waits func(id string, depth int)
	waits = func(id string, depth int) {
		if depth > len(after) {
			t.Fatalf("%s waits for itself", id)
		}
		for _, before := range after[id] {
			if _, ok := after[before]; !ok {
				t.Errorf("%s waits for %s, which does not exist", id, before)
			}
			waits(before, depth+1)
		}
	}
	for id := range after {
		waits(id, 0)
	}
}
