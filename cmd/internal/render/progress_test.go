package render

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl/gc"
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

func TestProgressLine(t *testing.T) {
	for _, tt := range []struct {
		show func(p *Progress)
		want string
	}{
		{func(p *Progress) { p.Update(plegbench.Progress{Phase: "connect"}) }, "| connecting"},
		{
			func(p *Progress) { p.Update(plegbench.Progress{Phase: "inspect", Done: 49, Total: 100, Hung: 2}) },
			"| asking for statuses 49/100, 2 hung",
		},
		{
			func(p *Progress) {
				p.Removing(gc.Progress{Total: 2000, Removed: 990, Skipped: 10, Failed: 1, TimeLeft: 10 * time.Second})
			}, "| removing 1,001/2,000, 1 failed, 10s left",
		},
		{func(p *Progress) { p.Removing(gc.Progress{Total: 9, Paused: "slow\x1b"}) }, `| removing 0/9, paused: slow\x1b`},
		{func(p *Progress) { p.Reading("/var/log/x.journal", 333<<20, 666<<20, 12) }, "| reading x.journal, 333 MiB of 666 MiB, 12 found"},
	} {
		p := NewProgress(io.Discard, false, 80, false)
		tt.show(p)
		if got := p.line(0); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

// TestProgressTurns checks that the line moves while everything hangs, and fits.
func TestProgressTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w terminal
		p := NewProgress(&w, true, 40, false)
		p.Update(plegbench.Progress{Phase: "a phase\x1b[2J of a name that is far too long for it", Hung: 3})
		time.Sleep(2 * time.Second)
		p.Done()
		got := w.all()
		if len(got) < 4 || len(got) > 9 {
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
		"only after the end": func(p *Progress) { p.Done(); p.Update(plegbench.Progress{}) },
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w terminal
				p := NewProgress(&w, true, 0, false)
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
		p := NewProgress(&w, true, 80, false)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 200 {
					p.Update(plegbench.Progress{Phase: "relist", Done: j, Total: 200})
					p.Removing(gc.Progress{Removed: i * j})
					time.Sleep(3 * time.Millisecond)
				}
			})
		}
		time.Sleep(550 * time.Millisecond)
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
		p := NewProgress(&w, true, 80, false)
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
		p := NewProgress(&w, true, 80, false)
		p.Update(plegbench.Progress{Phase: "probe"})
		time.Sleep(3 * time.Second)
		p.Done()
		if got := w.all(); len(got) != 1 {
			t.Errorf("%d attempts to write: %q", len(got), got)
		}
	})
}
