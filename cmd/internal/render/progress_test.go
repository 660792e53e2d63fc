package render

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// A terminal records what is written to it.
type terminal struct {
	mu     sync.Mutex
	writes []string
	err    error
	block  chan struct{} // when not nil, writes wait for it
}

func (t *terminal) Write(b []byte) (int, error) {
	if t.block != nil {
		<-t.block
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = append(t.writes, string(b))
	return len(b), t.err
}

func (t *terminal) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.writes...)
}

func sample(d time.Duration, code crictl.Code) plegbench.Sample {
	call := crictl.Call{Elapsed: d / 2, Code: code}
	return plegbench.Sample{Sandboxes: crictl.Call{Elapsed: d / 2, Code: crictl.OK}, Containers: call}
}

func TestProgressLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w terminal
		p := NewProgress(&w, true, 80)
		p.ASCII = true
		p.Update(plegbench.Progress{Phase: "connect"})
		time.Sleep(redrawEvery - time.Millisecond)
		if got := w.all(); len(got) != 0 {
			t.Errorf("drawn before %s: %q", redrawEvery, got)
		}
		time.Sleep(2 * time.Millisecond)
		for i := range 50 {
			p.Update(plegbench.Progress{Phase: "inspect", Done: i, Total: 100, Hung: 2})
		}
		time.Sleep(redrawEvery)
		p.Done()
		want := []string{
			"\r| connecting\x1b[K",
			"\r| asking for statuses  ############............  49/100  2 hung\x1b[K",
			"\r\x1b[K",
		}
		if got := w.all(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("drawn %q, want %q", got, want)
		}
	})
}

func TestProgressLiveView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w terminal
		p := NewProgress(&w, true, 100)
		p.ASCII = true
		p.Update(plegbench.Progress{Phase: "relist", Done: 4, Total: 60})
		p.Sample(sample(10*time.Millisecond, crictl.OK))
		p.Sample(sample(40*time.Millisecond, crictl.OK))
		p.Sample(sample(5*time.Second, crictl.DeadlineExceeded))
		p.Sample(sample(20*time.Millisecond, crictl.OK))
		time.Sleep(redrawEvery + time.Millisecond)
		p.Done()
		want := "\r| timing relists 4/60  .#x-  last 20ms  p50 20ms  p99 40ms  1 lost\x1b[K"
		if got := w.all(); got[0] != want {
			t.Errorf("drawn %q, want %q", got[0], want)
		}
	})
}

// TestProgressTurns checks that the line moves while everything hangs, and fits.
func TestProgressTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w terminal
		p := NewProgress(&w, true, 40)
		p.Update(plegbench.Progress{Phase: "a phase\x1b[2J of a name that is far too long for it", Hung: 3})
		time.Sleep(2 * time.Second)
		p.Done()
		got := w.all()
		if len(got) < 4 || len(got) > 10 {
			t.Errorf("drawn %d times in two seconds: %q", len(got), got)
		}
		for _, s := range got {
			line := strings.TrimSuffix(strings.TrimPrefix(s, "\r"), "\x1b[K")
			if columns(line) > 39 || strings.Contains(line, "\x1b") {
				t.Errorf("a line of %d columns: %q", columns(line), line)
			}
		}
	})
}

func TestProgressIsSilent(t *testing.T) {
	tests := map[string]func(*Progress){
		"no terminal":        func(p *Progress) { p.tty = false; p.Update(plegbench.Progress{Phase: "probe"}) },
		"nothing to tell":    func(*Progress) {},
		"done at once":       func(p *Progress) { p.Update(plegbench.Progress{Phase: "probe"}); p.Done() },
		"only after the end": func(p *Progress) { p.Done(); p.Update(plegbench.Progress{}); p.Sample(plegbench.Sample{}) },
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w terminal
				p := NewProgress(&w, true, 0)
				do(p)
				time.Sleep(time.Second)
				p.Done()
				p.Done()
				time.Sleep(time.Second)
				if got := w.all(); len(got) != 0 {
					t.Errorf("drawn %q", got)
				}
			})
		})
	}
}

// TestProgressConcurrent calls everything at once, for the race detector, and checks that Done is the last word.
func TestProgressConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w terminal
		p := NewProgress(&w, true, 80)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 200 {
					p.Update(plegbench.Progress{Phase: "relist", Done: j, Total: 200})
					p.Sample(sample(time.Duration(i*j)*time.Millisecond, crictl.OK))
					time.Sleep(3 * time.Millisecond)
				}
			})
		}
		time.Sleep(350 * time.Millisecond)
		p.Done()
		drawn := len(w.all())
		if drawn < 2 {
			t.Errorf("drawn %d times", drawn)
		}
		wg.Wait()
		time.Sleep(time.Second)
		got := w.all()
		if len(got) != drawn || got[drawn-1] != "\r\x1b[K" {
			t.Errorf("drawn %d times, %d of them after Done; the last is %q", len(got), len(got)-drawn, got[len(got)-1])
		}
	})
}

// TestProgressOnAStoppedTerminal checks that Done does not wait for ever.
func TestProgressOnAStoppedTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := terminal{block: make(chan struct{})}
		p := NewProgress(&w, true, 80)
		p.Update(plegbench.Progress{Phase: "probe"})
		time.Sleep(time.Second)
		start := time.Now()
		p.Done()
		if got := time.Since(start); got != doneWithin {
			t.Errorf("Done took %s, want %s", got, doneWithin)
		}
		close(w.block)
	})
}

// TestProgressOnAClosedTerminal checks that the first write error is the last attempt.
func TestProgressOnAClosedTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := terminal{err: errors.New("gone")}
		p := NewProgress(&w, true, 80)
		p.Update(plegbench.Progress{Phase: "probe"})
		time.Sleep(3 * time.Second)
		p.Done()
		if got := w.all(); len(got) != 1 {
			t.Errorf("%d attempts to write: %q", len(got), got)
		}
	})
}
