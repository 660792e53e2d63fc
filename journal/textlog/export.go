package textlog

import (
	"bytes"
	"encoding/binary"
	"io"
)

// exported reports whether a stream is the journal's export format (systemd's JOURNAL_EXPORT_FORMATS): it begins with an address field.
func exported(b []byte) bool {
	b = bytes.TrimLeft(b, "\r\n")
	for _, name := range [...]string{"__CURSOR=", "__REALTIME_TIMESTAMP=", "__SEQNUM="} {
		if bytes.HasPrefix(b, []byte(name)) {
			return true
		}
	}
	return false
}

// An entry is one entry of an export stream.
type entry struct {
	record  Record
	message [][]byte
	name    string // of the field read last
	value   []byte // of it, while lines may still continue it
	fields  int
}

// scanExport reads entries: lines of NAME=value, or NAME, eight bytes of length and the value; an empty line ends each. A
// line that is neither continues the value before it, as in a stream that a terminal has wrapped.
func (s *scanner) scanExport() error {
	e := entry{}
	s.stats.Records = 0
	for !s.stop {
		line, err := s.nextLine()
		if err == io.EOF {
			s.endEntry(&e)
			s.lastEntry(&e)
			return nil
		}
		if err != nil {
			return err
		}
		at := s.base + int64(s.pos)
		line = bytes.TrimRight(line, "\r")
		name, value, isField := fieldLine(line)
		switch {
		case len(line) == 0:
			s.endEntry(&e)
			e = entry{}
			continue
		case isField && (name == "__CURSOR" && e.fields > 0):
			s.endEntry(&e)
			e = entry{}
		}
		if e.fields == 0 {
			e.record = Record{Line: s.stats.Lines, Offset: at - int64(len(line)) - 1, Format: "journal-export"}
		}
		if isField {
			s.endField(&e)
			e.name, e.value, e.fields = name, bytes.Clone(value), e.fields+1
			continue
		}
		if fieldName(line) {
			field := string(line)
			value, ok, err := s.binaryValue()
			if err != nil {
				return err
			}
			if ok {
				s.endField(&e)
				e.name, e.value, e.fields = field, value, e.fields+1
				continue
			}
		}
		s.wrapped(&e, line)
	}
	return nil
}

// wrapped takes a line that continues a value.
func (s *scanner) wrapped(e *entry, line []byte) {
	s.wrap.flush = s.wrap.flush || line[0] != ' '
	switch {
	case e.name == "" || garbage(line):
		s.stats.Unparsed++
	case e.name == "MESSAGE" && len(e.value)+len(line) < s.opts.MaxRecord:
		if len(e.message) == 0 {
			e.message = append(e.message, e.value)
		}
		e.message = append(e.message, bytes.Clone(line))
	case len(e.value) < 4096:
		e.value = append(e.value, trimBlanks(line)...)
	}
}

// endField takes the field that is complete.
func (s *scanner) endField(e *entry) {
	switch e.name {
	case "":
	case "MESSAGE":
		if len(e.message) == 0 {
			e.message = [][]byte{e.value}
		}
	default:
		e.record.field(e.name, string(e.value))
	}
	e.name, e.value = "", nil
}

// endEntry gives an entry if it is asked for.
func (s *scanner) endEntry(e *entry) {
	s.endField(e)
	if e.fields == 0 {
		return
	}
	s.stats.Records++
	due := s.samples.due(s.opts.SampleEvery)
	var text []byte
	if len(e.message) > 0 {
		text = e.message[0]
	}
	if len(e.message) > 1 {
		text = s.join(nil, e.message, joining{lead: len("MESSAGE=")})
	}
	if !due && !s.opts.All && s.opts.Next != nil && s.opts.Next(text) < 0 && bytes.IndexByte(text, '\\') < 0 && bytes.IndexByte(text, 0x1b) < 0 {
		s.samples.line = 1
		s.samples.kept = append(s.samples.kept[:0], text[:min(len(text), 4096)]...)
		return
	}
	s.samples.line = 0
	s.giveEntry(e, text, due)
}

func (s *scanner) giveEntry(e *entry, text []byte, due bool) {
	if bytes.IndexByte(text, 0x1b) >= 0 {
		text = stripColour(make([]byte, 0, len(text)), text)
	}
	r := e.record
	r.Raw = text
	p := &peeling{Record: &r, layers: 1}
	p.peel(text)
	if s.contained(p, due) {
		return
	}
	s.offer(&r, due)
}

// lastEntry gives the last entry for its stamps if it was passed over.
func (s *scanner) lastEntry(e *entry) {
	if s.opts.SampleEvery <= 0 || s.opts.All || s.stop || s.samples.line == 0 || e.fields == 0 {
		return
	}
	s.giveEntry(e, s.samples.kept, true)
}

// nextLine returns the next line and moves behind it. A line that is too long is cut, and reported.
func (s *scanner) nextLine() ([]byte, error) {
	for {
		n := bytes.IndexByte(s.buf[s.pos:s.end], '\n')
		switch {
		case n >= 0:
			line := s.buf[s.pos : s.pos+n]
			s.pos += n + 1
			s.stats.Lines++
			return line, nil
		case s.eof && s.pos == s.end:
			return nil, io.EOF
		case s.eof:
			line := s.buf[s.pos:s.end]
			s.pos = s.end
			s.stats.Lines++
			return line, nil
		case s.end-s.pos > s.opts.MaxRecord:
			s.stats.addRange(Range{Offset: s.base + int64(s.pos), Bytes: int64(s.end - s.pos - 128), Why: "line longer than the limit"})
			line := bytes.Clone(s.buf[s.pos : s.pos+s.opts.MaxRecord])
			return line, s.skipLine()
		}
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
}

// skipLine moves behind the end of the line.
func (s *scanner) skipLine() error {
	for {
		if n := bytes.IndexByte(s.buf[s.pos:s.end], '\n'); n >= 0 {
			s.pos += n + 1
			s.stats.Lines++
			return nil
		}
		s.pos = s.end
		if s.eof {
			return nil
		}
		if err := s.fill(); err != nil {
			return err
		}
	}
}

// binaryValue reads a value behind its length. ok is false, and nothing is taken, if no length stands there that fits.
func (s *scanner) binaryValue() (value []byte, ok bool, err error) {
	for !s.eof && s.end-s.pos < 8 {
		if err := s.fill(); err != nil {
			return nil, false, err
		}
	}
	if s.end-s.pos < 8 {
		return nil, false, nil
	}
	n := binary.LittleEndian.Uint64(s.buf[s.pos:])
	if n > uint64(s.opts.MaxRecord) {
		return nil, false, nil
	}
	size := int(n)
	for !s.eof && s.end-s.pos < 8+size+1 {
		if err := s.fill(); err != nil {
			return nil, false, err
		}
	}
	if s.end-s.pos < 8+size+1 || s.buf[s.pos+8+size] != '\n' {
		return nil, false, nil
	}
	all := s.buf[s.pos : s.pos+8+size+1]
	s.stats.Lines += int64(bytes.Count(all, []byte("\n")))
	s.pos += len(all)
	return bytes.Clone(all[8 : 8+size]), true, nil
}
