package textlog

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// close ends the record that is open, and yields it if it is selected.
func (s *scanner) close() {
	c := s.cur
	s.cur = open{}
	if c.lines == 0 || s.stop {
		return
	}
	switch {
	case c.kind == kindBare:
		s.bare(c)
	case c.held && s.torn(c):
		s.splitTorn(c)
	default:
		s.finish(c)
	}
}

// finish yields a record that has a beginning, if it is selected.
func (s *scanner) finish(c open) {
	due := s.samples.due(s.opts.SampleEvery)
	if !due && !s.opts.All && !s.worth(c) {
		s.samples.tail = c
		return
	}
	p := s.parse(c)
	if s.part(p) {
		return
	}
	if s.contained(p, due) {
		return
	}
	s.offer(p.Record, due)
	if p.Sample || s.opts.All || !stamped(p.Record) {
		return
	}
	s.samples.tail = c
}

// contained yields the records that one record contains, and reports whether there are any. If none of them contains a
// literal, but the whole does, the whole is yielded.
func (s *scanner) contained(p *peeling, due bool) bool {
	if len(p.list) == 0 {
		return false
	}
	if s.opts.Next != nil && s.found(p.Record) && !slices.ContainsFunc(p.list, func(l listed) bool {
		text := []byte(l.text)
		return s.opts.Next(text) >= 0 || s.unescaped(text)
	}) {
		s.offer(p.Record, due)
		return true
	}
	base := *p.Record
	base.Message = nil
	for _, l := range p.list {
		r := base
		r.Raw = bytes.TrimRight([]byte(l.text), "\r\n")
		if s.stop || len(r.Raw) == 0 {
			continue
		}
		if strings.HasPrefix(l.text, "{") {
			r.Format = strings.TrimSuffix(strings.TrimSuffix(base.Format, "json"), "+")
		}
		inner := &peeling{Record: &r, layers: min(p.layers+1, maxLayers-2)}
		inner.peel(r.Raw)
		if !r.Outer.Known {
			r.Outer = l.outer
		}
		r.Host = cmp.Or(r.Host, l.host)
		if !s.contained(inner, due) {
			s.offer(&r, due)
		}
		due = false
	}
	return true
}

// worth reports whether a record may contain a literal: its text does, or an escape, a colour code, a line end or a
// part that is in another record may hide one.
func (s *scanner) worth(c open) bool {
	if c.lines > 1 || s.hit.next(s.buf[:s.end], c.start) < c.end {
		return true
	}
	raw := s.buf[c.start:c.end]
	switch c.kind {
	case kindCRI, kindISO:
		if len(s.parts) > 0 || bytes.Contains(raw[19:min(len(raw), 60)], []byte(" P")) {
			return true
		}
	case kindRow:
		if bytes.Contains(raw, []byte(`""`)) {
			return true
		}
	case kindJSON:
		if len(s.parts) > 0 || bytes.Contains(raw, []byte(`"MESSAGE":[`)) ||
			bytes.HasPrefix(raw, []byte(`{"log"`)) && !bytes.Contains(raw, []byte(`\n",`)) {
			return true
		}
	}
	return s.hides(c) && s.unescaped(raw)
}

// hides reports whether a record has a byte that begins an escape or a colour code.
func (s *scanner) hides(c open) bool {
	for i := range s.odd {
		if s.odd[i].next(s.buf[:s.end], c.start) < c.end {
			return true
		}
	}
	return false
}

// unescaped reports whether a literal shows when escapes are undone, up to three levels of them.
func (s *scanner) unescaped(raw []byte) bool {
	if s.opts.Next == nil {
		return false
	}
	b := stripColour(raw)
	if len(b) < len(raw) && s.opts.Next(b) >= 0 {
		return true
	}
	for range 3 {
		if bytes.IndexByte(b, '\\') < 0 {
			return false
		}
		s.plain = klog.Unescape(s.plain[:0], b)
		s.scratch = append(s.scratch[:0], stripColour(s.plain)...)
		if b = s.scratch; s.opts.Next(b) >= 0 {
			return true
		}
	}
	return false
}

// parse joins the lines of an open record and unwraps it.
func (s *scanner) parse(c open) *peeling {
	raw := s.assemble(c)
	r := &Record{Line: c.line, Offset: s.base + int64(c.start), Raw: raw, Boot: s.boot}
	p := &peeling{Record: r, columns: s.columns}
	if c.kind == kindVerbose || c.kind == kindExport {
		s.entry(p, raw, c.kind)
	} else {
		p.peel(raw)
	}
	s.nameNode(c.kind, p)
	return p
}

// found reports whether a record contains a literal.
func (s *scanner) found(r *Record) bool {
	return s.opts.Next != nil && (s.opts.Next(r.Message) >= 0 || s.opts.Next(r.Raw) >= 0 || s.unescaped(r.Raw))
}

// offer yields a record if it is selected; due is set if a sample is.
func (s *scanner) offer(r *Record, due bool) {
	found := s.found(r)
	if due && stamped(r) {
		s.samples.begun, s.samples.since = true, 0
		r.Sample = !found
	} else if !found && !s.opts.All {
		return
	}
	s.emit(r)
}

func (s *scanner) emit(r *Record) {
	if !r.Sample {
		s.given[r.Format]++
	} else if s.samples.format == "" {
		s.samples.format = r.Format
	}
	s.stop = s.stop || !s.yield(r)
}

func stamped(r *Record) bool { return r.Outer.Known || r.Inner.Known }

// A part is the beginning of a message that containers' logs split, by stream.
type part struct {
	record Record
	text   []byte
}

// part joins split messages. It reports whether the record is a part of one.
func (s *scanner) part(p *peeling) bool {
	held := s.parts[p.stream]
	if p.stream == "" || held == nil && !p.partial {
		return false
	}
	body := bytes.TrimRight(p.split, "\n")
	if held == nil {
		held = &part{record: *p.Record}
		held.record.Raw, held.record.Message = nil, nil
		s.parts[p.stream] = held
	}
	if len(held.text)+len(body) <= s.opts.MaxRecord {
		held.text = append(held.text, body...)
	} else if len(held.text) < s.opts.MaxRecord {
		s.stats.addRange(Range{Offset: p.Offset, Bytes: int64(len(p.Raw)), Why: "record longer than the limit"})
	}
	if p.partial {
		return true
	}
	delete(s.parts, p.stream)
	s.givePart(held)
	return true
}

// lastParts yields the messages whose ends are missing, in the order in which they begin.
func (s *scanner) lastParts() {
	held := slices.SortedFunc(maps.Values(s.parts), func(a, b *part) int {
		return cmp.Compare(a.record.Offset, b.record.Offset)
	})
	clear(s.parts)
	for _, p := range held {
		if !s.stop {
			s.givePart(p)
		}
	}
}

func (s *scanner) givePart(held *part) {
	r := held.record
	r.Format = held.record.Format[:formatEnd(held.record.Format)]
	r.Raw = held.text
	whole := &peeling{Record: &r, layers: 1}
	whole.peel(held.text)
	s.offer(&r, false)
}

// formatEnd returns the length of the first layer's name.
func formatEnd(format string) int {
	if n := bytes.IndexByte([]byte(format), '+'); n >= 0 {
		return n
	}
	return len(format)
}
