package journal

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/signature"
)

// matchers finds records: with the proof that the sync loop runs, which healthy kubelets write all day, or without.
type matchers struct{ full, lean *signature.Matcher }

func newMatchers() *matchers {
	return &matchers{full: signature.NewMatcher(), lean: signature.NewMatcher(signature.SyncLoopActive)}
}

// A record is what the collector takes, whatever format it came from. It is valid during the call only.
type record struct {
	msg          []byte
	inner, outer klog.Stamp
	mono         int64
	boot         string
	host         string
	senders      []string // units and identifiers, empty ones included
	pid          int      // as the program itself says, else as the outer prefix says
	sample       bool     // given for its stamps; nothing was looked for in it yet
}

// A collector turns the records of one source into hits.
type collector struct {
	pool      *pool
	m         *matchers
	part      *part
	units     []string
	everySync bool // see Options
	window    limits
	found     *atomic.Int64
	onEvent   func(Event) // nil, or told of each hit

	active    atomic.Pointer[signature.Matcher]
	seq       uint32
	last      int64
	ups       int
	downs     int
	afterPLEG bool
	pending   *syncHit
	codes     map[string]uint16
	hosts     map[string]uint16
	lastHost  string
	buf       []signature.Match
	tried     []signature.Match // by match
	passed    int64             // records of the units asked for
}

// maxDated bounds the conditions whose text is kept to date stamps.
const maxDated = 256

func newCollector(p *pool, m *matchers, pt *part, units []string, found *atomic.Int64) *collector {
	c := &collector{pool: p, m: m, part: pt, found: found, codes: map[string]uint16{}, hosts: map[string]uint16{}}
	for _, u := range units {
		c.units = append(c.units, strings.TrimSuffix(u, ".service"))
	}
	c.active.Store(m.full)
	return c
}

// next is the prefilter: where in a text the first literal of a signature stands.
func (c *collector) next(b []byte) int { return c.active.Load().Next(b) }

// match tests one message of a journal. It asks for signatures, not only for their literals: going from a message to the
// entries that it belongs to costs more.
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
	if len(c.units) == 0 {
		return true
	}
	named := false
	for _, s := range r.senders {
		if s == "" {
			continue
		}
		named = true
		if slices.Contains(c.units, strings.TrimSuffix(s, ".service")) {
			return true
		}
	}
	return !named
}

// take takes one record.
func (c *collector) take(r *record) {
	c.seq++
	m := newMoment(r.inner, r.outer, r.mono)
	m.seq = c.seq
	if r.boot != "" {
		m.boot = c.pool.name(r.boot)
	}
	c.order(&m)
	c.part.store.sight(m)
	if r.sample && c.next(r.msg) < 0 || !c.wanted(r) {
		return
	}
	c.passed++
	c.buf = c.m.full.Match(r.msg, c.buf[:0])
	for i := range c.buf {
		c.hit(&c.buf[i], r, m)
	}
}

// order notices logs that run backwards.
func (c *collector) order(m *moment) {
	t, ok := m.raw()
	if !ok {
		return
	}
	if c.last != 0 && t > c.last {
		c.ups++
	} else if c.last != 0 && t < c.last {
		c.downs++
	}
	c.last = t
}

// descending reports whether the source is newest first, by what was seen of it.
func (c *collector) descending() bool { return c.downs > 2*c.ups }

// hit keeps one signature of a record.
func (c *collector) hit(h *signature.Match, r *record, m moment) {
	code := h.Signature.Code
	switch code {
	case signature.SyncLoopActive:
		c.sync(r, m)
		return
	case signature.PLEGNotHealthy:
		c.pleg(h, r, m)
	default:
		s, d := subjectOf(h), detailOf(h, r)
		k := burstKey{
			code: c.code(code), host: c.host(r.host), subject: c.pool.subject(s), detail: c.pool.detail(d),
			pid: int32(r.pid), side: c.side(m),
		}
		c.part.store.add(k, m, float32(h.Seconds))
	}
	if id := c.code(code); c.wantsExample(c.part.store.examples[id], m) {
		c.part.store.examples[id] = example{at: m, text: clean(string(r.msg[:min(len(r.msg), 4*exampleLength)]), exampleLength)}
	}
	if c.onEvent != nil {
		c.onEvent(liveEvent(h, m))
	}
}

// wantsExample reports whether a record should take the place of the example of its code: the first of the range asked for. What lies in it
// is a guess until all stamps are known, and counts looks again.
func (c *collector) wantsExample(ex example, m moment) bool {
	return ex.text == "" || c.side(ex.at) != 0 && c.side(m) == 0
}

// side tells on which side of the range asked for a record lies, as its source's hint has its stamp: -1 before, 1 after, 0 within or unknown.
func (c *collector) side(m moment) int8 {
	t, year, zone := m.outer, m.has(outerYear), m.has(outerZone)
	if m.has(innerKnown) {
		t, year, zone = m.inner, m.has(innerYear), m.has(innerZone)
	}
	if c.window.open() || !m.has(innerKnown) && !m.has(outerKnown) {
		return 0
	}
	if !year {
		t = nearYear(t, c.part.hint.notAfter.UnixMicro())
	}
	if !zone {
		t = inLocation(t, c.part.hint.loc)
	}
	switch {
	case !c.window.since.IsZero() && t < c.window.since.UnixMicro():
		return -1
	case !c.window.until.IsZero() && t > c.window.until.UnixMicro():
		return 1
	}
	return 0
}

// liveEvent is the event of one hit, for following a log.
func liveEvent(h *signature.Match, m moment) Event {
	e := Event{
		Count: 1, Lane: string(h.Signature.Lane), Code: h.Signature.Code, Marker: string(h.Signature.Marker),
		What: h.Signature.Title, Subject: clean(subjectOf(h).label(), 120),
	}
	e.At = liveTime(m)
	if h.HasAge {
		e.What += ", last seen active " + h.Age.Round(time.Millisecond).String() + " ago"
	}
	return e
}

// liveTime is when a record came in, for following a log: as its outer stamp says, or else now.
func liveTime(m moment) *time.Time {
	if m.has(outerKnown | outerYear | outerZone) {
		return timeOf(m.outer)
	}
	return timeOf(time.Now().UnixMicro())
}

func (c *collector) code(code string) uint16 {
	id, ok := c.codes[code]
	if !ok {
		id = c.pool.name(code)
		c.codes[code] = id
	}
	return id
}

func (c *collector) host(name string) uint16 {
	id, ok := c.hosts[name]
	if !ok {
		id = c.pool.name(name)
		if len(c.hosts) < maxNames {
			c.hosts[strings.Clone(name)] = id
		}
	}
	return id
}

// hostName returns the name of a host as a string, mostly one that is known already.
func (c *collector) hostName(b []byte) string {
	if c.lastHost != string(b) {
		c.lastHost = string(b)
	}
	return c.lastHost
}

// sync keeps the proofs that the loop runs next to unhealthy records, and stops looking for more.
func (c *collector) sync(r *record, m moment) {
	h := syncHit{moment: m, pid: int32(r.pid), host: c.host(r.host)}
	if c.afterPLEG {
		c.part.store.addSync(h)
	}
	if c.onEvent != nil && c.afterPLEG {
		c.onEvent(Event{
			At: liveTime(m), Count: 1, Lane: string(signature.Kubelet), Code: signature.SyncLoopActive, Marker: string(signature.Recovery),
			What: "the sync loop runs again",
		})
	}
	c.pending, c.afterPLEG = &h, false
	if c.everySync {
		c.part.store.add(burstKey{code: c.code(signature.SyncLoopActive), host: h.host, pid: h.pid}, m, 0)
		return
	}
	if !c.descending() {
		c.active.Store(c.m.lean)
	}
}

// pleg keeps an unhealthy record.
func (c *collector) pleg(h *signature.Match, r *record, m moment) {
	if c.found != nil {
		c.found.Add(1)
	}
	if t, ok := conditionTime(r.msg); ok {
		switch {
		case m.has(innerKnown) && len(c.part.texts) < maxDated:
			c.part.texts = append(c.part.texts, dated{seq: m.seq, inner: m.inner, year: m.has(innerYear), instant: t})
		case !m.has(innerKnown) && !m.has(outerKnown):
			m.outer, m.flags = t, m.flags|outerKnown|outerYear|outerZone
			c.part.store.sight(m)
		}
	}
	p := plegHit{moment: m, pid: int32(r.pid), lines: 1, host: c.host(r.host)}
	if h.HasAge {
		p.age, p.kind = int64(h.Age), p.kind|hasAge
	}
	if h.Never {
		p.kind |= never
	}
	if h.Condition {
		p.kind |= condition
	}
	if s := int64(h.Threshold / time.Second); s > 0 && s < 1<<16 {
		p.threshold = uint16(s)
	}
	if us, ok := m.raw(); ok && us%second == 0 {
		p.kind |= coarse
	}
	if slices.Contains(h.Reasons, reasonPending) {
		p.kind |= pending
	}
	p.reasons = c.pool.name(joinReasons(h.Reasons))
	c.part.store.addPLEG(p)
	if c.pending != nil {
		c.part.store.addSync(*c.pending) // in a log that runs backwards, this one came after
		c.pending = nil
	}
	c.afterPLEG = true
	c.active.Store(c.m.full)
}

// joinReasons and splitReasons keep a list of reasons as one text, which the pool numbers.
func joinReasons(list []string) string { return strings.Join(list, "\x1f") }

func splitReasons(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\x1f")
}

// detailOf is what a hit says of the call that failed, and of whom it is about.
func detailOf(h *signature.Match, r *record) detail {
	text := h.ErrorText
	if len(text) > 100 {
		text = text[:100]
	}
	d := detail{
		RPC: h.RPC, Code: h.GRPCCode, Text: text, Size: h.Size, Limit: h.Limit, Sending: h.Sending,
		Role: laneRole(h.Role), Constraint: h.Constraint, Placed: h.Constraint != "" && h.Path != "", Pods: h.Constraint != "" && ofPods(h.Path), Owner: h.Owner,
	}
	if anyonesWords(h.Signature.Code) {
		d.Role = senderRole(r)
		d.Everywhere = bytes.Contains(r.msg, []byte("too many open files in system")) // ENFILE; EMFILE has no more words
	}
	return d
}

// subjectOf is the object that a hit names, the most particular one first.
func subjectOf(h *signature.Match) subject {
	s := subject{Namespace: h.Namespace, Pod: h.Pod, PodUID: h.PodUID}
	switch {
	case h.ContainerID != "":
		s.Kind, s.ID, s.Name = "Container", h.ContainerID, h.Container
	case h.SandboxID != "":
		s.Kind, s.ID = "PodSandbox", h.SandboxID
	case h.Process != "":
		s.Kind, s.Name = "Process", h.Process
		if h.PID != 0 {
			s.ID = strconv.Itoa(h.PID)
		}
	case h.Path != "":
		s.Kind, s.ID = "Filesystem", h.Path
	case h.Device != "":
		s.Kind, s.ID = "Device", h.Device
	case h.Unit != "":
		s.Kind, s.ID = "Unit", h.Unit
	case h.Pod != "" || h.PodUID != "":
		s.Kind, s.Name = "Pod", h.Container
	default:
		return subject{}
	}
	return s
}
