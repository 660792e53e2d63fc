package textlog

import "bytes"

// What is yielded of a line beyond its limit, in bytes before and behind a literal.
const before, behind = 256, 2048

// long takes a line that is longer than a record may be: its beginning as a record, of the rest what surrounds each
// literal.
func (s *scanner) long() error {
	if s.cur.lines > 0 {
		s.close()
	}
	from := s.pos
	s.take(from, from+s.opts.MaxRecord)
	s.cur.lines = min(s.cur.lines, 1)
	var head Record
	if s.cur.lines > 0 {
		begin := open{kind: s.cur.kind, start: from, end: from + min(s.opts.MaxRecord, 4096), line: s.stats.Lines, lines: 1}
		head = *s.parse(begin).Record
	} else {
		head = Record{Line: s.stats.Lines, Format: "bare"}
	}
	head.Raw, head.Message = nil, nil
	s.close()
	rest := s.base + int64(from+s.opts.MaxRecord)
	s.pos = from + s.opts.MaxRecord - s.hit.overlap
	err := s.windows(&head)
	s.stats.addRange(Range{Offset: rest, Bytes: s.base + int64(s.pos) - rest, Why: "line longer than the limit"})
	if s.pos < s.end && s.buf[s.pos] == '\n' {
		s.pos++
	}
	return err
}

// windows yields what surrounds each literal up to the end of the line, and leaves pos there.
func (s *scanner) windows(head *Record) error {
	floor := s.base + int64(s.pos)
	for !s.stop {
		n := bytes.IndexByte(s.buf[s.pos:s.end], '\n')
		if n < 0 && !s.eof && s.end-s.pos < before+2*behind { // room for a window
			if err := s.fill(); err != nil {
				return err
			}
			continue
		}
		limit, last := s.end, s.end-behind // of the line; of the places at which a window fits
		if n >= 0 {
			limit = s.pos + n
		}
		if n >= 0 || s.eof {
			last = limit
		}
		hit := last
		if s.opts.Next != nil {
			hit = min(last, s.hit.next(s.buf[:s.end], s.pos))
		}
		if hit == last {
			if last == limit {
				s.pos = limit
				return nil
			}
			s.pos = last - before
			continue
		}
		r := *head
		start, to := max(hit-before, int(floor-s.base), 0), min(hit+behind, limit)
		r.Raw = s.buf[start:to]
		r.Message, r.Offset = r.Raw, s.base+int64(start)
		s.pos, floor = to, s.base+int64(to)
		if !garbage(r.Raw) { // the stretch is reported anyway
			s.emit(&r)
		}
	}
	return nil
}
