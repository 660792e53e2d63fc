package textlog

// maxKept bounds the copy of the last record, in bytes.
const maxKept = 64 << 10

// samples decides which records are given for their stamps alone.
type samples struct {
	since  int // records since the last one
	begun  bool
	format string
	tail   open // the last record, in the buffer
	kept   []byte
	line   int64
	offset int64
}

// due counts a record and reports whether it is one to give. The first one that has a stamp is.
func (m *samples) due(every int) bool {
	if every <= 0 {
		return false
	}
	m.since++
	m.tail, m.kept = open{}, m.kept[:0]
	return !m.begun || m.since >= every
}

func (m *samples) taken() { m.begun, m.since = true, 0 }

// last notes the record that was passed over last.
func (m *samples) last(c open) { m.tail = c }

// keep copies that record before the first n bytes of the buffer go.
func (m *samples) keep(buf []byte, base int64, n int) {
	if m.tail.lines == 0 {
		return
	}
	if m.tail.start < n {
		m.kept = append(m.kept[:0], buf[m.tail.start:min(m.tail.end, m.tail.start+maxKept)]...)
		m.line, m.offset = m.tail.line, base+int64(m.tail.start)
		m.tail.lines = 0
		return
	}
	m.tail.start -= n
	m.tail.end -= n
}

// lastSample gives the last record of the stream if it was passed over.
func (s *scanner) lastSample() {
	m := &s.samples
	if s.opts.SampleEvery <= 0 || s.opts.All || s.stop {
		return
	}
	var p *peeling
	switch {
	case m.tail.lines > 0:
		p = s.parse(m.tail)
	case len(m.kept) > 0:
		p = &peeling{Record: &Record{Line: m.line, Offset: m.offset, Raw: m.kept, Boot: s.boot}, columns: s.columns}
		p.peel(m.kept)
	default:
		return
	}
	if stamped(p.Record) && !s.found(p.Record) {
		p.Sample = true
		s.give(p.Record)
	}
}
