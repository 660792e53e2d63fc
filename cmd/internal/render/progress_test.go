package render

import (
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl"
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
	clean := gc.Progress{Total: 2000, Removed: 990, Skipped: 10, Failed: 1, TimeLeft: 10 * time.Second}
	for want, show := range map[string]func(p *Progress){
		"| connecting to the runtime": func(p *Progress) { p.Update(plegbench.Progress{Phase: "connect"}) },
		"| waiting for the runtime: status calls 49/100, 2 hung": func(p *Progress) {
			p.Update(plegbench.Progress{Phase: "inspect", Done: 49, Total: 100, Hung: 2})
		},
		"| waiting for shop/web-0 app: status calls 99/100": func(p *Progress) {
			stuck := plegbench.Inspection{Name: "app", Pod: crictl.Pod{Namespace: "shop", Name: "web-0"}}
			p.Update(plegbench.Progress{Phase: "inspect", Done: 99, Total: 100, Waiting: &stuck})
		},
		"| removing 1,001/2,000, 1 failed, 10s left": func(p *Progress) { p.Removing(clean) },
		`| removing 0/9, paused: slow\x1b`: func(p *Progress) {
			p.Removing(gc.Progress{Total: 9, Paused: "slow\x1b"})
		},
		"| reading x.journal, 333 MiB of 666 MiB, 12 found": func(p *Progress) {
			p.Reading("/var/log/x.journal", 333<<20, 666<<20, 12)
		},
	} {
		p := NewProgress(io.Discard, false, 80, false)
		show(p)
		if got := p.line(0); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// onTerminal runs a test in fake time with a progress line on a terminal of 40 columns.
func onTerminal(t *testing.T, name string, test func(t *testing.T, w *terminal, p *Progress)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var w terminal
			test(t, &w, NewProgress(&w, true, 40, false))
		})
	})
}

func TestProgress(t *testing.T) {
	probe := plegbench.Progress{Phase: "probe"}
	onTerminal(t, "turns while everything hangs, and fits", func(t *testing.T, w *terminal, p *Progress) {
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
	for name, do := range map[string]func(*Progress){
		"no terminal":        func(p *Progress) { p.tty = false; p.Update(probe) },
		"nothing to show":    func(*Progress) {},
		"done at once":       func(p *Progress) { p.Update(probe); p.Done() },
		"only after the end": func(p *Progress) { p.Done(); p.Update(probe) },
	} {
		onTerminal(t, name, func(t *testing.T, w *terminal, p *Progress) {
			do(p)
			time.Sleep(time.Second)
			p.Done()
			p.Done()
			time.Sleep(time.Second)
			if got := w.all(); len(got) != 0 {
				t.Errorf("drawn %q", got)
			}
		})
	}
	onTerminal(t, "from many goroutines, and nothing after Done", func(t *testing.T, w *terminal, p *Progress) {
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
		wg.Wait()
		time.Sleep(time.Second)
		if got := w.all(); drawn < 2 || len(got) != drawn || got[drawn-1] != "\r\x1b[K" {
			t.Errorf("drawn %d times, and after Done: %q", drawn, got[drawn:])
		}
	})
	onTerminal(t, "a terminal that is stopped", func(t *testing.T, w *terminal, p *Progress) {
		w.block = make(chan struct{})
		p.Update(probe)
		time.Sleep(time.Second)
		start := time.Now()
		p.Done()
		if got := time.Since(start); got != doneWithin {
			t.Errorf("Done took %s, want %s", got, doneWithin)
		}
		close(w.block)
	})
}
