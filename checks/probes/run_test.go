package probes

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/internal/testkit"
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
	// late ends some time after its context.
	late := func(by time.Duration) func(context.Context) (host.Clock, error) {
		return func(ctx context.Context) (host.Clock, error) {
			<-ctx.Done()
			time.Sleep(by)
			return host.Clock{MaxError: 1}, ctx.Err()
		}
	}
	for _, tt := range []struct {
		name   string
		read   func(context.Context) (host.Clock, error)
		want   facts.Reading[host.Clock]
		hung   []string
		cancel time.Duration // of the command; 0 for never
	}{
		{name: "found", read: fine, want: facts.Reading[host.Clock]{Value: host.Clock{Synchronised: true}, OK: true}},
		{
			name: "does not apply",
			read: func(context.Context) (host.Clock, error) { return host.Clock{}, skip{"none here"} },
			want: facts.Reading[host.Clock]{Skipped: true, Missing: "none here"},
		},
		{
			name: "panics", read: func(context.Context) (host.Clock, error) { panic("boom") },
			want: facts.Reading[host.Clock]{Missing: "internal error: boom"},
		},
		{
			name: "hangs", read: late(time.Second), hung: []string{"clock"},
			want: facts.Reading[host.Clock]{Hung: true, Missing: "outstanding for 2s", Took: 2 * time.Second},
		},
		{
			name: "returns a part when its time is up", read: late(50 * time.Millisecond),
			want: facts.Reading[host.Clock]{
				Value: host.Clock{MaxError: 1}, Missing: "context deadline exceeded", Took: 1950 * time.Millisecond,
			},
		},
		{
			name: "hangs when the command ends", read: late(time.Second), cancel: 300 * time.Millisecond,
			want: facts.Reading[host.Clock]{Missing: "the command ended first", Took: 400 * time.Millisecond},
		},
		{name: "left out", want: facts.Reading[host.Clock]{Skipped: true, Missing: "this command does not look at it"}},
	} {
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if tt.cancel > 0 {
				time.AfterFunc(tt.cancel, cancel)
			}
			n := run(ctx, []Probe{clockLook(tt.read)}, Input{}, func(Probe) bool { return tt.read != nil })
			testkit.Equal(t, "the clock", tt.want, n.Clock)
			if !slices.Equal(n.Hung, tt.hung) {
				t.Errorf("hung %v, want %v", n.Hung, tt.hung)
			}
			time.Sleep(time.Second) // what hangs ends within the bubble
			cancel()
		})
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
			took := time.Since(began)
			if !n.Memory.OK || saw.OK != (hang < 2*time.Second) || saw.Hung == saw.OK || took > 2*time.Second {
				t.Errorf("clock hangs %v: memory %+v saw %+v after %v", hang, n.Memory, saw, took)
			}
			time.Sleep(hang)
		})
	}
}

// TestProbes checks that docs/checks.md describes each probe with its limit, and that each waits for probes that exist
// and do not wait for it.
func TestProbes(t *testing.T) {
	_, looks, _ := strings.Cut(testkit.Read(t, "../../docs/checks.md"), "\n# Looks\n")
	after := map[string][]string{}
	for _, p := range Probes() {
		after[p.ID] = p.After
	}
	for _, p := range Probes() {
		for _, id := range p.After {
			if before, ok := after[id]; !ok || slices.Contains(before, p.ID) {
				t.Errorf("%s waits for %s, which does not exist, or waits for it", p.ID, id)
			}
		}
		_, text, found := strings.Cut(looks, "\n## "+p.ID+"\n\n")
		text, _, _ = strings.Cut(text, "\n\n")
		if !found || !strings.Contains(text, "Left behind after "+p.Limit.String()) {
			t.Errorf("docs/checks.md describes %s so: %q", p.ID, text)
		}
	}
}

// TestRunRepeatsNothingThatHangs makes a look each second for an hour, as a service does, at what hangs in the kernel:
// it is started once, and its age is the finding. When it has ended it is started again.
func TestRunRepeatsNothingThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g deadline.Guard
		var started atomic.Int64
		release := make(chan struct{})
		clock := clockLook(func(context.Context) (host.Clock, error) {
			started.Add(1)
			<-release
			return host.Clock{Synchronised: true}, nil
		})
		look := func() *facts.Node {
			return run(deadline.WithGuard(t.Context(), &g), []Probe{clock}, Input{}, everything)
		}
		var last *facts.Node
		for range 3600 {
			last = look()
			time.Sleep(time.Second)
		}
		if started.Load() != 1 || !last.Clock.Hung || last.Clock.Took < time.Hour ||
			!slices.Equal(last.Hung, []string{"clock"}) {
			t.Errorf("started %d times, hung %v: %+v", started.Load(), last.Hung, last.Clock)
		}
		close(release)
		synctest.Wait()
		if n := look(); started.Load() != 2 || !n.Clock.OK {
			t.Errorf("after its end started %d times: %+v", started.Load(), n.Clock)
		}
	})
}
