package journal

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unique"

	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/journal/textlog"
)

// matchers finds records: with the proof that the sync loop runs, which healthy kubelets write all day, or without.
type matchers struct{ full, lean *signature.Matcher }

// A logSource is one source as it was read, with what is known of its stamps.
type logSource struct {
	Source
	matches *matches
	hint    calendarHint
	cal     *calendar

	blank   bool  // a text without a line that holds anything
	binary  int64 // lines of a text that are not text
	skipped bool  // a journal file that by its header holds nothing of the time asked for
}

// A collector turns the records of one source into matches.
type collector struct {
	*logSource
	m     matchers
	opts  *Options
	found *atomic.Int64

	active         atomic.Pointer[signature.Matcher]
	seq            uint32
	last           int64
	ups, downs     int // how often time went up and down from record to record
	afterUnhealthy bool
	pending        *Burst // the latest proof that the loop runs, not kept yet
	buf            []signature.Match
}

func (r *reading) newCollector(s *logSource) *collector {
	c := &collector{logSource: s, m: r.m, opts: r.opts, found: &r.found}
	c.active.Store(r.m.full)
	return c
}

// next is the prefilter: where in a text the first literal of a signature stands.
func (c *collector) next(b []byte) int { return c.active.Load().Next(b) }

// match tests one message of a journal. It asks for signatures, not only for their literals: going from a message to
// the entries that it belongs to costs more.
func (c *collector) match(b []byte) bool {
	c.buf = c.active.Load().Match(b, c.buf[:0])
	return len(c.buf) > 0
}

// wanted reports whether a record is of the units asked for. Records that name no sender pass.
func (c *collector) wanted(r *textlog.Record) bool {
	if len(c.opts.Units) == 0 {
		return true
	}
	by := senders(r)
	return len(by) == 0 || slices.ContainsFunc(c.opts.Units, func(unit string) bool {
		unit = strings.TrimSuffix(unit, ".service")
		return slices.Contains(by, unit) || slices.Contains(by, unit+".service")
	})
}

// senders returns the units and identifiers that a record names.
func senders(r *textlog.Record) []string {
	by := slices.Clone(r.Units)
	if r.Kernel {
		by = append(by, "kernel")
	}
	return slices.DeleteFunc(append(by, r.Identifier), func(s string) bool { return s == "" })
}

// take takes one record.
func (c *collector) take(r *textlog.Record) {
	c.seq++
	t := newTimestamp(r, c.seq)
	if at, ok := t.raw(); ok {
		if c.last != 0 && at > c.last {
			c.ups++
		} else if c.last != 0 && at < c.last {
			c.downs++
		}
		c.last = at
	}
	c.matches.stamp(t)
	if r.Sample && c.next(r.Message) < 0 || !c.wanted(r) {
		return
	}
	c.buf = c.m.full.Match(r.Message, c.buf[:0])
	for i := range c.buf {
		c.keep(&c.buf[i], r, t)
	}
}

// descending reports whether the source is newest first, by what was seen of it.
func (c *collector) descending() bool { return c.downs > 2*c.ups }

// ownChild begins the names of kdiag's own child processes (package host), which it leaves behind in file systems that
// hang. The kernel reports them, and they hold nothing up.
const ownChild = "kdiag-"

// keep keeps one match of a record.
func (c *collector) keep(m *signature.Match, r *textlog.Record, t timestamp) {
	if strings.HasPrefix(m.Process, ownChild) {
		return
	}
	b := Burst{
		burstKey: burstKey{
			Code: m.Signature.Code, host: unique.Make(r.Host).Value(), PID: int32(cmp.Or(r.InnerPID, r.PID)), side: c.side(t),
			object: unique.Make(objectOf(m)), call: unique.Make(callOf(m, r)),
		},
		first: t, last: t, Count: 1, Seconds: m.Seconds,
	}
	switch b.Code {
	case signature.SyncLoopActive:
		c.syncLoop(b, m.Signature)
		return
	case signature.PLEGNotHealthy:
		c.unhealthy(m, r, t, b.host)
	case signature.RuntimeIsDown: // the next proof that the loop runs is its end
		c.afterUnhealthy = true
		c.active.Store(c.m.full)
		c.matches.add(b)
	default:
		c.matches.add(b)
	}
	// The example is the first record in the range asked for. What lies in it is a guess until all stamps are known,
	// and counts looks again.
	text := r.Message[:min(len(r.Message), 4*exampleLength)]
	ex := c.matches.examples[b.Code]
	if ex == nil || c.side(ex.at) != 0 && b.side == 0 {
		ex = &example{at: t, text: Clean(string(text), exampleLength), latestAt: t}
		c.matches.examples[b.Code] = ex
	}
	if b.side == 0 && !before(t, ex.latestAt) && !bytes.Contains(text, []byte("exceeds retry count")) {
		ex.latestAt, ex.latest = t, append(ex.latest[:0], text...)
	}
	what := ""
	if m.HasAge {
		what = ", last seen active " + m.Age.Round(time.Millisecond).String() + " ago"
	}
	c.live(b, m.Signature, what)
}

// live hands on a record while a log is followed. Its time is that of the record, or else now.
func (c *collector) live(b Burst, s *signature.Signature, what string) {
	if c.opts.onEvent == nil {
		return
	}
	at, known := (&calendar{hint: c.hint}).instant(b.first)
	if !known {
		at = time.Now().UnixMicro()
	}
	c.opts.onEvent(Event{
		At: timeOf(at), Count: 1, Lane: string(s.Lane), Code: b.Code, Marker: string(s.Marker),
		What: b.title(s.Title) + what, Subject: Clean(b.Object().Label(), 120),
	})
}

// side returns on which side of the range asked for a record lies, by its own stamps alone: -1 before, 1 after, 0
// within or unknown.
func (c *collector) side(t timestamp) int8 {
	w := c.opts.window()
	if w.open() {
		return 0
	}
	if at, ok := (&calendar{hint: c.hint}).instant(t); ok {
		return w.side(at)
	}
	return 0
}

// syncLoop keeps the proofs that the loop runs next to unhealthy records, and stops looking for more.
func (c *collector) syncLoop(b Burst, s *signature.Signature) {
	b.object, b.call, b.after = unique.Make(Object{}), unique.Make(Call{}), uint32(len(c.matches.unhealthy))
	if c.afterUnhealthy {
		c.live(b, s, "")
	}
	if c.pending = &b; c.afterUnhealthy || c.opts.everySync {
		c.matches.add(b)
		c.pending = nil
	}
	c.afterUnhealthy = false
	if !c.opts.everySync && !c.descending() {
		c.active.Store(c.m.lean)
	}
}

// unhealthy keeps an unhealthy record.
func (c *collector) unhealthy(m *signature.Match, r *textlog.Record, t timestamp, host string) {
	c.found.Add(1)
	if s, ok := conditionTime(r.Message); ok {
		t.outer, t.stated = s, true
		c.matches.stamp(t)
	}
	if c.pending != nil {
		c.matches.add(*c.pending) // in a log that runs backwards, this one came after
		c.pending = nil
	}
	c.matches.addUnhealthy(newUnhealthy(m, t, cmp.Or(r.InnerPID, r.PID), host))
	c.afterUnhealthy = true
	c.active.Store(c.m.full)
}
