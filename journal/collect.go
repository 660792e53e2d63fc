package journal

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unique"

	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/signature"
)

// matchers finds records: with the proof that the sync loop runs, which healthy kubelets write all day, or without.
type matchers struct{ full, lean *signature.Matcher }

func newMatchers() *matchers {
	return &matchers{full: signature.NewMatcher(), lean: signature.NewMatcher(signature.SyncLoopActive)}
}

// A record is what a source gives, whatever its format is. It is valid during the call only.
type record struct {
	msg          []byte
	inner, outer klog.Stamp
	mono         int64
	boot         string
	host         string
	senders      []string // units and identifiers, empty ones included
	pid          int      // as the program itself states, else by the outer prefix
	sample       bool     // given for its stamps; it was not searched yet
}

// A logSource is one source as it was read, with what is known of its stamps.
type logSource struct {
	Source
	matches *matches
	hint    calendarHint
	texts   []dated
	cal     *calendar

	blind   bool // it was read, and nothing in it is of use
	skipped bool // a journal file that by its header holds nothing of the time asked for
}

// A collector turns the records of one source into matches.
type collector struct {
	*logSource
	m       *matchers
	opts    *Options
	units   []string
	found   *atomic.Int64
	onEvent func(Event) // nil, or called with each match

	active         atomic.Pointer[signature.Matcher]
	seq            uint32
	last           int64
	ups, downs     int // how often time went up and down from record to record
	afterUnhealthy bool
	pending        *mark // the latest proof that the loop runs, not kept yet
	hosts          map[string]string
	buf            []signature.Match
	tried          []signature.Match // by match
	passed         int64             // records of the units asked for
}

// Bounds of what is kept beside the matches.
const (
	maxDated = 256    // conditions whose text is kept to date stamps
	maxHosts = 16_000 // names
)

func newCollector(s *logSource, m *matchers, opts *Options, found *atomic.Int64) *collector {
	c := &collector{logSource: s, m: m, opts: opts, found: found, hosts: map[string]string{}}
	for _, u := range opts.Units {
		c.units = append(c.units, strings.TrimSuffix(u, ".service"))
	}
	c.active.Store(m.full)
	return c
}

// next is the prefilter: where in a text the first literal of a signature stands.
func (c *collector) next(b []byte) int { return c.active.Load().Next(b) }

// match tests one message of a journal. It asks for signatures, not only for their literals: going from a message to
// the entries that it belongs to costs more.
func (c *collector) match(b []byte) bool {
	m := c.active.Load()
	if m.Next(b) < 0 {
		return false
	}
	c.tried = m.Match(b, c.tried[:0])
	return len(c.tried) > 0
}

// wanted reports whether a record is of the units asked for. Records that name no sender pass.
func (c *collector) wanted(r *record) bool {
	named := false
	for _, s := range r.senders {
		if s != "" && slices.Contains(c.units, strings.TrimSuffix(s, ".service")) {
			return true
		}
		named = named || s != ""
	}
	return !named || len(c.units) == 0
}

// take takes one record.
func (c *collector) take(r *record) {
	c.seq++
	m := newTimestamp(r)
	m.seq = c.seq
	if t, ok := m.raw(); ok {
		if c.last != 0 && t > c.last {
			c.ups++
		} else if c.last != 0 && t < c.last {
			c.downs++
		}
		c.last = t
	}
	c.matches.stamp(m)
	if r.sample && c.next(r.msg) < 0 || !c.wanted(r) {
		return
	}
	c.passed++
	c.buf = c.m.full.Match(r.msg, c.buf[:0])
	for i := range c.buf {
		c.keep(&c.buf[i], r, m)
	}
}

// descending reports whether the source is newest first, by what was seen of it.
func (c *collector) descending() bool { return c.downs > 2*c.ups }

// keep keeps one match of a record.
func (c *collector) keep(h *signature.Match, r *record, m timestamp) {
	code := h.Signature.Code
	switch code {
	case signature.SyncLoopActive:
		c.syncLoop(r, m)
		return
	case signature.PLEGNotHealthy:
		c.unhealthy(h, r, m)
	default:
		k := burstKey{
			Code: code, host: c.host(r.host), object: unique.Make(objectOf(h)), call: unique.Make(callOf(h, r)),
			PID: int32(r.pid), side: c.side(m),
		}
		c.matches.add(k, m, h.Seconds)
	}
	// The example is the first record in the range asked for. What lies in it is a guess until all stamps are known,
	// and counts looks again.
	if ex := c.matches.examples[code]; ex.text == "" || c.side(ex.at) != 0 && c.side(m) == 0 {
		c.matches.examples[code] = example{at: m, text: Clean(string(r.msg[:min(len(r.msg), 4*exampleLength)]),
			exampleLength)}
	}
	if c.onEvent == nil {
		return
	}
	e := Event{
		At: liveTime(m), Count: 1, Lane: string(h.Signature.Lane), Code: code, Marker: string(h.Signature.Marker),
		What: h.Signature.Title, Subject: Clean(objectOf(h).Label(), 120),
	}
	if h.HasAge {
		e.What += ", last seen active " + h.Age.Round(time.Millisecond).String() + " ago"
	}
	c.onEvent(e)
}

// side returns on which side of the range asked for a record lies, as its source's hint has its stamp: -1 before, 1
// after, 0 within or unknown.
func (c *collector) side(m timestamp) int8 {
	w := c.opts.window()
	t, year, zone := m.outer, m.has(outerYear), m.has(outerZone)
	if m.has(innerKnown) {
		t, year, zone = m.inner, m.has(innerYear), m.has(innerZone)
	}
	if w.open() || m.flags&(innerKnown|outerKnown) == 0 {
		return 0
	}
	if !year {
		t = nearYear(t, c.hint.notAfter.UnixMicro())
	}
	if !zone {
		t = inLocation(t, c.hint.loc)
	}
	return w.side(t)
}

// liveTime is when a record came in, for following a log: by its outer stamp, or else now.
func liveTime(m timestamp) *time.Time {
	if m.has(outerKnown | outerYear | outerZone) {
		return timeOf(m.outer)
	}
	return timeOf(time.Now().UnixMicro())
}

// host returns a name of a host that does not share the memory of the record.
func (c *collector) host(name string) string {
	known, ok := c.hosts[name]
	if !ok {
		known = strings.Clone(name)
		if len(c.hosts) < maxHosts {
			c.hosts[known] = known
		}
	}
	return known
}

// hostOf is host for a name that is mostly known already.
func (c *collector) hostOf(name []byte) string {
	if known, ok := c.hosts[string(name)]; ok {
		return known
	}
	return c.host(string(name))
}

// syncLoop keeps the proofs that the loop runs next to unhealthy records, and stops looking for more.
func (c *collector) syncLoop(r *record, m timestamp) {
	h := mark{timestamp: m, code: signature.SyncLoopActive, pid: int32(r.pid), host: c.host(r.host)}
	if c.afterUnhealthy {
		c.matches.addMark(h)
		if c.onEvent != nil {
			c.onEvent(Event{
				At: liveTime(m), Count: 1, Lane: string(signature.Kubelet), Code: h.code,
				Marker: string(signature.Recovery),
				What:   "the sync loop runs again",
			})
		}
	}
	c.pending, c.afterUnhealthy = &h, false
	if c.opts.everySync {
		c.matches.add(burstKey{Code: h.code, host: h.host, PID: h.pid}, m, 0)
	} else if !c.descending() {
		c.active.Store(c.m.lean)
	}
}

// unhealthy keeps an unhealthy record.
func (c *collector) unhealthy(h *signature.Match, r *record, m timestamp) {
	if c.found != nil {
		c.found.Add(1)
	}
	if t, ok := conditionTime(r.msg); ok {
		switch {
		case m.has(innerKnown) && len(c.texts) < maxDated:
			c.texts = append(c.texts, dated{seq: m.seq, inner: m.inner, year: m.has(innerYear), instant: t})
		case !m.has(innerKnown) && !m.has(outerKnown):
			m.outer, m.flags = t, m.flags|outerKnown|outerYear|outerZone
			c.matches.stamp(m)
		}
	}
	c.matches.addUnhealthy(newUnhealthy(h, m, r.pid, c.host(r.host)))
	if c.pending != nil {
		c.matches.addMark(*c.pending) // in a log that runs backwards, this one came after
		c.pending = nil
	}
	c.afterUnhealthy = true
	c.active.Store(c.m.full)
}
