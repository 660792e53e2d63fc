package render

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

// The pace of a progress line.
const (
	redrawEvery = 100 * time.Millisecond // also how long a command may run before the line appears
	doneWithin  = time.Second            // how long Done waits for a terminal that takes no more output
	keptSamples = 4096                   // for the percentiles of the live view
)

// spinner turns while nothing else on the line does: it says that kdiag is alive, whatever hangs.
const spinner = `|/-\`

// Progress shows on a terminal how far a measurement is, in one line that is rewritten in place and gone at the end.
// Where the writer is no terminal it shows nothing. All methods may be called at the same time from several goroutines.
type Progress struct {
	ASCII bool // draw with ASCII only; to be set before the first Update or Sample

	w     io.Writer
	tty   bool
	width int

	mu       sync.Mutex
	now      plegbench.Progress
	reading  reading     // of logs, instead
	removing gc.Progress // of a clean-up, instead
	samples  []float64   // seconds of the newest relists; negative for one without an answer
	seen     int         // relists so far
	lost     int         // of them without an answer
	drawing  bool        // the drawing goroutine was started
	done     bool
	stop     chan struct{} // closed by Done
	stopped  chan struct{} // closed when the drawing goroutine has ended
}

// NewProgress returns a Progress that draws on w if w is a terminal of width columns; 0 means 80.
func NewProgress(w io.Writer, tty bool, width int) *Progress {
	if width <= 0 {
		width = defaultWidth
	}
	return &Progress{
		w: w, tty: tty, width: max(width, minWidth),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// Update says how far the measurement is.
func (p *Progress) Update(now plegbench.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
	p.start()
}

// Sample adds one timed relist to the live view.
func (p *Progress) Sample(s plegbench.Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seconds := s.Elapsed().Seconds()
	if !s.OK() {
		seconds = -1
		p.lost++
	}
	p.seen++
	p.samples = append(p.samples, seconds)
	if len(p.samples) > keptSamples {
		p.samples = slices.Delete(p.samples, 0, len(p.samples)-keptSamples)
	}
	p.start()
}

// Done removes the line. Nothing is drawn after it has returned. It waits for a drawing that is under way, but not for
// ever: a serial line may be stopped.
func (p *Progress) Done() {
	p.mu.Lock()
	first, drawing := !p.done, p.drawing
	p.done = true
	p.mu.Unlock()
	if first {
		close(p.stop)
	}
	if !drawing {
		return
	}
	select {
	case <-p.stopped:
	case <-time.After(doneWithin):
	}
}

// start lets the line be drawn from now on. The lock is held.
func (p *Progress) start() {
	if !p.tty || p.drawing || p.done {
		return
	}
	p.drawing = true
	go p.draw()
}

// draw redraws the line when it has changed, until Done.
func (p *Progress) draw() {
	defer close(p.stopped)
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	const home, erase = "\r", "\x1b[K"
	drawn := ""
	for n := 0; ; n++ {
		select {
		case <-p.stop:
			if drawn != "" {
				_, _ = io.WriteString(p.w, home+erase)
			}
			return
		case <-tick.C:
		}
		p.mu.Lock()
		line := p.line(n)
		p.mu.Unlock()
		if line == drawn {
			continue
		}
		drawn = line
		if _, err := io.WriteString(p.w, home+line+erase); err != nil {
			return // nobody looks any more
		}
	}
}

// line composes the line of the nth tick, one column narrower than the terminal: a cursor in the last column makes
// some terminals scroll.
func (p *Progress) line(n int) string {
	const turn = 3 // ticks per step of the spinner; slow enough for a serial line
	c := cleaner{ascii: p.ASCII}
	turning := string(spinner[n/turn%len(spinner)]) + " "
	if p.reading.source != "" {
		line, _ := head(strings.ReplaceAll(turning+p.readingLine(c), glue, " "), p.width-1, maxProgressLine)
		return line
	}
	if p.removing.Total > 0 {
		line, _ := head(strings.ReplaceAll(turning+p.removingLine(c), glue, " "), p.width-1, maxProgressLine)
		return line
	}
	start := turning + phase(c, p.now.Phase)
	end := ""
	if p.now.Hung > 0 {
		end = "  " + count(p.now.Hung) + " hung"
	}
	var line string
	if p.seen > 0 && p.now.Phase == "relist" {
		line = p.live(start, end)
	} else {
		line = p.bar(start, end)
	}
	line, _ = head(strings.ReplaceAll(line, glue, " "), p.width-1, len(line))
	return line
}

// phase returns what a phase does, in words.
func phase(c cleaner, name string) string {
	switch name {
	case "connect":
		return "connecting"
	case "probe":
		return "asking every RPC once"
	case "relist":
		return "timing relists"
	case "inspect":
		return "asking for statuses"
	}
	return c.prose(name)
}

// bar shows how much of a phase is done.
func (p *Progress) bar(start, end string) string {
	const width = 24
	if p.now.Total <= 0 {
		return start + end
	}
	g := newGlyphs(p.ASCII)
	done := g.bar(float64(p.now.Done), float64(p.now.Total), width)
	rest := strings.Repeat(g.track, width-columns(done))
	return start + "  " + done + rest + "  " + count(p.now.Done) + "/" + count(p.now.Total) + end
}

// live shows the newest relists as a series, and the percentiles so far.
func (p *Progress) live(start, end string) string {
	g := newGlyphs(p.ASCII)
	last := "lost"
	if v := p.samples[len(p.samples)-1]; v >= 0 {
		last = duration(v)
	}
	start += " " + strconv.Itoa(p.seen)
	if p.now.Total > 0 {
		start += "/" + strconv.Itoa(p.now.Total)
	}
	numbers := "  last " + last
	answered := slices.DeleteFunc(slices.Clone(p.samples), func(v float64) bool { return v < 0 })
	if len(answered) > 0 {
		slices.Sort(answered)
		numbers += "  p50 " + duration(rank(answered, 0.5)) + "  p99 " + duration(rank(answered, 0.99))
	}
	if p.lost > 0 {
		end = "  " + count(p.lost) + " lost" + end
	}
	room := p.width - 1 - columns(start) - 2 - columns(numbers) - columns(end)
	if room < 4 {
		return start + numbers + end
	}
	newest := p.samples[max(0, len(p.samples)-room):]
	return start + "  " + g.series(newest, room) + numbers + end
}

// rank returns the quantile q of sorted values, by nearest rank.
func rank(sorted []float64, q float64) float64 {
	i := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(max(i, 1), len(sorted))-1]
}
