package render

import (
	"cmp"
	"context"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

// The pace of a progress line.
const (
	redrawEvery = 250 * time.Millisecond // also how long a command may run before the line appears
	doneWithin  = time.Second            // how long Done waits for a terminal that takes no more output
)

// spinner turns while nothing else on the line does: it shows that kdiag is alive, whatever hangs.
const spinner = `|/-\`

// Progress shows on a terminal how far a command is, in one line that is rewritten in place and gone at the end. Where
// the writer is no terminal it shows nothing. All methods may be called at the same time from several goroutines.
type Progress struct {
	w     io.Writer
	tty   bool
	width int
	ascii bool // show names with ASCII only

	mu    sync.Mutex
	text  string
	begin sync.Once          // starts to draw, or Done has come first
	stop  context.CancelFunc // for Done
	done  <-chan struct{}    // closed by stop
	ended chan struct{}      // closed when nothing is drawn any more
}

// NewProgress returns a Progress that draws on w if w is a terminal of width columns; 0 means 80.
func NewProgress(w io.Writer, tty bool, width int, ascii bool) *Progress {
	p := &Progress{
		w: w, tty: tty, width: max(cmp.Or(width, defaultWidth), minWidth), ascii: ascii, ended: make(chan struct{}),
	}
	ctx, stop := context.WithCancel(context.Background())
	p.done, p.stop = ctx.Done(), stop
	return p
}

// Update shows how far a measurement is.
func (p *Progress) Update(now plegbench.Progress) {
	words := map[string]string{
		"connect": "connecting to the runtime", "probe": "waiting for the runtime: RPCs",
		"relist": "waiting for the runtime: relist", "inspect": "waiting for the runtime: status calls",
	}
	text := cmp.Or(words[now.Phase], now.Phase)
	if now.Total > 0 {
		text += " " + units.Number(now.Done) + "/" + units.Number(now.Total)
	}
	if w := now.Waiting; w != nil {
		text = strings.Replace(text, "the runtime", w.Pod.Namespace+"/"+w.Pod.Name+" "+w.Name, 1)
	}
	p.show(text + countOf(now.Hung, "hung"))
}

// Removing shows how far a clean-up is, how long it will take, and why it waits.
func (p *Progress) Removing(now gc.Progress) {
	text := "removing " + units.Number(now.Removed+now.Skipped+now.Failed) + "/" + units.Number(now.Total) +
		countOf(now.Failed, "failed")
	switch {
	case now.Paused != "":
		text += ", paused: " + now.Paused
	case now.TimeLeft > 0:
		text += ", " + units.Duration(now.TimeLeft) + " left"
	}
	p.show(text)
}

// Reading shows how far the reading of logs is: what is read, the bytes read of all and of how many, and how many
// records of an unhealthy PLEG were found. A total of 0 is not known.
func (p *Progress) Reading(source string, done, total, found int64) {
	text := "reading " + path.Base(source) + ", " + size(done)
	if total > 0 {
		text += " of " + size(total)
	}
	p.show(text + countOf(int(found), "found"))
}

// show lets the line be drawn from now on, with this text.
func (p *Progress) show(text string) {
	p.mu.Lock()
	p.text = text
	p.mu.Unlock()
	if p.tty {
		p.begin.Do(func() { go p.draw() })
	}
}

// Done removes the line. Nothing is drawn after it has returned. It waits for a drawing that is under way, but not for
// ever: a serial line may be stopped.
func (p *Progress) Done() {
	p.stop()
	p.begin.Do(func() { close(p.ended) })
	select {
	case <-p.ended:
	case <-time.After(doneWithin):
	}
}

// draw redraws the line until Done.
func (p *Progress) draw() {
	defer close(p.ended)
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	const home, erase = "\r", "\x1b[K"
	for n := 0; ; n++ {
		select {
		case <-p.done:
			if n > 0 {
				_, _ = io.WriteString(p.w, home+erase)
			}
			return
		case <-tick.C:
		}
		if _, err := io.WriteString(p.w, home+p.line(n)+erase); err != nil {
			return // the terminal is gone
		}
	}
}

// line composes the nth drawing, one column narrower than the terminal: a cursor in the last column makes some
// terminals scroll.
func (p *Progress) line(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	const mostBytes = 4096 // a name may be anything
	text := cleaner{ascii: p.ascii}.prose(p.text)
	line, _ := head(strings.ReplaceAll(spinner[n%len(spinner):][:1]+" "+text, glue, " "), p.width-1, mostBytes)
	return line
}
