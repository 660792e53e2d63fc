package textlog

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
)

// close ends the record that is open, and yields it if it is selected.
func (s *scanner) close() {
	c := s.cur
	s.cur = openRecord{}
	switch {
	case c.lines == 0 || s.stop:
	case c.kind == kindBare:
		s.bare(c)
	default:
		s.finish(c)
	}
}

// finish yields a record that has a beginning, if it is selected.
func (s *scanner) finish(c openRecord) {
	due := s.samples.due(s.opts.SampleEvery)
	if !due && !s.opts.All && !s.worth(c) {
		s.samples.tail = c
		return
	}
	p := s.parse(c)
	if s.part(p) {
		return
	}
	s.offer(p.Record, due)
	if !p.Sample && !s.opts.All && stamped(p.Record) {
		s.samples.tail = c
	}
}

// worth reports whether a record may contain a literal: its text does, or a line end, a colour code, an array of bytes,
// or a part that is in another record may hide one.
func (s *scanner) worth(c openRecord) bool {
	if c.lines > 1 || s.hit.next(s.buf[:s.end], c.start) < c.end || s.colour.next(s.buf[:s.end], c.start) < c.end {
		return true
	}
	raw := s.buf[c.start:c.end]
	if s.opts.Wanted != nil && s.opts.Wanted(s.base+int64(c.start), raw) {
		return true
	}
	switch c.kind {
	case kindCRI, kindISO:
		return len(s.parts) > 0 || bytes.Contains(raw[19:min(len(raw), 60)], []byte(" P"))
	case kindJSON:
		return len(s.parts) > 0 || bytes.Contains(raw, []byte(`"MESSAGE":[`)) ||
			bytes.HasPrefix(raw, []byte(`{"log"`)) && !bytes.Contains(raw, []byte(`\n",`))
	}
	return false
}

// parse joins the lines of an open record and unwraps it.
func (s *scanner) parse(c openRecord) *unwrapper {
	raw := s.assemble(c)
	p := &unwrapper{Record: &Record{Offset: s.base + int64(c.start), Raw: raw}}
	if c.kind == kindVerbose || c.kind == kindExport {
		p.entry(raw, c.kind)
	} else {
		p.unwrapAll(raw)
	}
	return p
}

// found reports whether a record contains a literal, or is wanted without one.
func (s *scanner) found(r *Record) bool {
	return s.opts.Next != nil && (s.opts.Next(r.Message) >= 0 || s.opts.Next(r.Raw) >= 0) ||
		s.opts.Wanted != nil && s.opts.Wanted(r.Offset, r.Raw)
}

// offer yields a record if it is selected; due is set if a sample is.
func (s *scanner) offer(r *Record, due bool) {
	found := s.found(r)
	if due && (stamped(r) || r.Format == "describe") { // events have ages, no times
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

// bare yields a line without a beginning, with the lines that continue it, as a record if it contains a literal.
func (s *scanner) bare(c openRecord) {
	s.stats.Unparsed++
	if !s.opts.All && c.lines == 1 && !s.worth(c) {
		return
	}
	p := s.parse(c)
	if s.found(p.Record) {
		s.stats.Unparsed--
	} else if !s.opts.All {
		return
	}
	s.emit(p.Record)
}

// A part is the beginning of a message that containers' logs split, by stream.
type part struct {
	record Record
	text   []byte
}

// part joins split messages. It reports whether the record is a part of one.
func (s *scanner) part(p *unwrapper) bool {
	held := s.parts[p.Stream]
	if p.Stream == "" || held == nil && !p.partial {
		return false
	}
	if held == nil {
		held = &part{record: *p.Record}
		s.parts[p.Stream] = held
	}
	if body := bytes.TrimRight(p.split, "\n"); len(held.text)+len(body) <= s.opts.maxRecord {
		held.text = append(held.text, body...)
	} else {
		s.stats.addRange(Range{Offset: p.Offset, Bytes: int64(len(p.Raw)), Why: whyLong})
	}
	if !p.partial {
		delete(s.parts, p.Stream)
		s.givePart(held)
	}
	return true
}

// lastParts yields the messages whose ends are missing, in the order in which they begin.
func (s *scanner) lastParts() {
	held := slices.SortedFunc(maps.Values(s.parts), func(a, b *part) int {
		return cmp.Compare(a.record.Offset, b.record.Offset)
	})
	for _, p := range held {
		if !s.stop {
			s.givePart(p)
		}
	}
}

func (s *scanner) givePart(held *part) {
	r := held.record
	r.Format, _, _ = strings.Cut(r.Format, "+")
	r.Raw = held.text
	whole := &unwrapper{Record: &r, layers: 1}
	whole.unwrapAll(held.text)
	s.offer(&r, false)
}
