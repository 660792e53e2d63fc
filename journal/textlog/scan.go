package textlog

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"strings"
)

const blockSize = 1 << 20

// A scanner reads a stream line by line and keeps one record, not yet closed, in its buffer.
type scanner struct {
	ctx   context.Context
	opts  Options
	yield func(*Record) bool
	stats Stats
	r     io.Reader

	buf  []byte
	pos  int // the line to look at next
	end  int
	base int64 // offset of buf[0]
	eof  bool
	err  error // why the stream ended
	stop bool  // yield returned false

	hit    finder // the next literal
	colour finder // the next escape character

	cur      openRecord       // the record that is not closed yet
	skipping bool             // the lines that follow continue a record which became too long
	given    map[string]int64 // records by format
	parts    map[string]*part
	samples  samples
	joined   []byte
	scratch  []byte
}

// An openRecord is a stretch of the buffer.
type openRecord struct {
	kind       kind
	start, end int // without the last line feed
	lines      int
}

// Scan reads records from r, which may be compressed, and calls yield with each that opts selects, until yield returns
// false. Damaged compression, bytes that are not text and lines that are too long are reported in Stats; the error
// is that of r or of ctx. Memory is bounded by a few times the longest record.
func Scan(ctx context.Context, r io.Reader, opts Options, yield func(*Record) bool) (Stats, error) {
	if opts.maxRecord <= 0 {
		opts.maxRecord = defaultMaxRecord
	}
	s := &scanner{ctx: ctx, opts: opts, yield: yield, given: map[string]int64{}, parts: map[string]*part{}}
	if opts.Live {
		r = plain{r}
	}
	text, compression, err := Unpack(r)
	s.stats.Compression = compression
	if err != nil {
		if compression == "" {
			return s.stats, err
		}
		s.stats.addRange(Range{Bytes: -1, Why: err.Error()})
		return s.stats, nil
	}
	defer text.Close()
	s.r = text
	s.buf = make([]byte, opts.maxRecord+opts.Longest+blockSize)
	s.hit.find = opts.Next
	s.hit.overlap = max(opts.Longest-1, 0)
	s.colour.find = func(b []byte) int { return bytes.IndexByte(b, 0x1b) }
	if err = s.scan(); err == nil {
		err = s.err
	}
	s.stats.Bytes = s.base + int64(s.end)
	s.stats.Format = s.format()
	return s.stats, err
}

// format returns the format of most records.
func (s *scanner) format() string {
	best, most := "", int64(0)
	for f, n := range s.given {
		if n > most || n == most && f < best {
			best, most = f, n
		}
	}
	return cmp.Or(best, s.samples.format)
}

// scan reads all lines.
func (s *scanner) scan() error {
	for !s.stop {
		n := bytes.IndexByte(s.buf[s.pos:s.end], '\n')
		switch {
		case n >= 0 && n <= s.opts.maxRecord:
			s.take(s.pos, s.pos+n)
			s.pos += n + 1
		case n > s.opts.maxRecord || s.end-s.pos > s.opts.maxRecord:
			if err := s.long(); err != nil {
				return err
			}
		case s.eof:
			if s.pos < s.end {
				s.take(s.pos, s.end)
				s.pos = s.end
			}
			s.close()
			s.lastParts()
			s.lastSample()
			return nil
		default:
			if err := s.fill(); err != nil {
				return err
			}
		}
	}
	return nil
}

// long takes the beginning of a line that is longer than a record may be, and passes over the rest.
func (s *scanner) long() error {
	s.close()
	s.take(s.pos, s.pos+s.opts.maxRecord)
	s.close()
	s.pos += s.opts.maxRecord
	from := s.base + int64(s.pos)
	n := bytes.IndexByte(s.buf[s.pos:s.end], '\n')
	for n < 0 && !s.eof {
		s.pos = s.end
		if err := s.fill(); err != nil {
			return err
		}
		n = bytes.IndexByte(s.buf[s.pos:s.end], '\n')
	}
	if n < 0 {
		n = s.end - s.pos
	}
	s.stats.addRange(Range{Offset: from, Bytes: s.base + int64(s.pos+n) - from, Why: whyLong})
	s.pos = min(s.end, s.pos+n+1)
	return nil
}

// fill moves the part of the buffer that is still needed to its front, and reads more.
func (s *scanner) fill() error {
	if err := s.ctx.Err(); err != nil {
		s.err, s.eof = err, true // earlier records still count
		return nil
	}
	keep := s.pos
	if s.cur.lines > 0 {
		keep = s.cur.start
	}
	if len(s.buf)-s.end < blockSize/2 && keep > 0 {
		s.shift(keep)
	}
	if s.end == len(s.buf) { // a record and a line behind it, both as long as they may be
		s.close()
		s.shift(s.pos)
	}
	from := s.end
	n, err := s.r.Read(s.buf[s.end:])
	for tries := 0; n == 0 && err == nil && !s.opts.Live; tries++ {
		if tries == 100 {
			return io.ErrNoProgress
		}
		n, err = s.r.Read(s.buf[s.end:])
	}
	if n == 0 && err == nil && s.pos == s.end && (s.cur.kind != kindExport || s.exportEnded()) {
		s.close() // whatever was to continue the last record would be here
	}
	s.end += n
	if keep = s.pos; s.cur.lines > 0 {
		keep = s.cur.start
	}
	s.hit.extend(s.buf[:s.end], from, keep)
	s.colour.extend(s.buf[:s.end], from, keep)
	if s.opts.Progress != nil {
		s.opts.Progress(s.base + int64(s.end))
	}
	switch {
	case err == nil, err == io.EOF:
	case s.stats.Compression == "" && err != io.ErrUnexpectedEOF:
		s.err = err // is returned once all that was read has been taken
	default:
		s.stats.addRange(Range{Offset: s.base + int64(s.end), Bytes: -1, Why: strings.TrimSpace(err.Error())})
	}
	s.eof = err != nil
	return nil
}

// shift drops the first n bytes of the buffer.
func (s *scanner) shift(n int) {
	if s.samples.tail.lines > 0 && s.samples.tail.start < n {
		s.lastSample()
	}
	s.samples.tail.start -= n
	s.samples.tail.end -= n
	copy(s.buf, s.buf[n:s.end])
	s.end -= n
	s.pos -= n
	s.base += int64(n)
	s.cur.start -= n
	s.cur.end -= n
	s.hit.at -= n
	s.colour.at -= n
}

// samples decides which records are yielded for their stamps alone: the first that has a stamp, every n-th, and the
// last of the stream or of a full buffer.
type samples struct {
	since  int // records since the last one
	begun  bool
	format string
	tail   openRecord // the record that was passed over last, if it is in the buffer
}

// due counts a record and reports whether it is to be yielded.
func (m *samples) due(every int) bool {
	if every <= 0 {
		return false
	}
	m.since++
	m.tail = openRecord{}
	return !m.begun || m.since >= every
}

// lastSample yields the record that was passed over last.
func (s *scanner) lastSample() {
	tail := s.samples.tail
	s.samples.tail = openRecord{}
	if s.opts.SampleEvery <= 0 || s.opts.All || s.stop || tail.lines == 0 {
		return
	}
	if p := s.parse(tail); stamped(p.Record) && !s.found(p.Record) {
		p.Sample = true
		s.emit(p.Record)
	}
}

// A finder knows where something comes next in the buffer.
type finder struct {
	find    func([]byte) int
	at      int // where it is; the end of the searched part if it is nowhere
	overlap int // how much of the searched part a find across its end may need
}

// next returns where the next find at or behind from is; at the end of buf if there is none.
func (f *finder) next(buf []byte, from int) int {
	if f.at < from && f.find != nil {
		f.search(buf, from)
	}
	return f.at
}

func (f *finder) search(buf []byte, from int) {
	f.at = len(buf)
	if n := f.find(buf[from:]); n >= 0 {
		f.at = from + n
	}
}

// extend looks at what was read into buf[old:]. Nothing before keep is of interest.
func (f *finder) extend(buf []byte, old, keep int) {
	switch {
	case f.find == nil:
		f.at = len(buf)
	case f.at < keep:
		f.search(buf, keep)
	case f.at >= old: // none before
		f.search(buf, max(keep, old-f.overlap))
	}
}
