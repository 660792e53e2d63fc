package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/textlog"
)

// sampleEvery is how many stamped records of a text lie between two whose stamps are looked at, so that its zone, its
// year and its range become known without reading every stamp.
const sampleEvery = 256

// text reads a file of text or a stream.
func (r *reader) text(ctx context.Context, s *source) error {
	var in io.Reader
	switch {
	case s.next != nil && (s.size <= int64(*s.next) || s.changed.Before(r.opts.Since)):
		return nil
	case s.kind == kindStream:
		in = &keeper{Reader: &pipeReader{ctx: ctx, in: s.stream}, to: &s.kept}
	case s.kind == kindKmsg:
		k, err := openKmsg(r.opts.Now())
		if err != nil {
			return err
		}
		defer k.close()
		in = k
	default:
		f, err := safefile.Open(s.path, 0)
		if err != nil {
			return plain(err)
		}
		defer f.Close() // was only read
		in = f
		if s.next != nil {
			in = io.NewSectionReader(f, int64(*s.next), math.MaxInt64)
		}
	}
	b := bufio.NewReaderSize(in, 64<<10)
	switch head, err := b.Peek(len(journalMagic)); {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return ErrEmpty
	case len(head) == 0:
		return plain(err)
	case string(head) == journalMagic:
		return errors.New("a journal file; give its name, it cannot be read from a pipe")
	}
	done := int64(0)
	stats, err := textlog.Scan(ctx, b, textlog.Options{
		Next: s.literal, Longest: r.m.full.Longest(), SampleEvery: sampleEvery, Wanted: s.mayBeError,
		Progress: func(read int64) {
			r.advance(s.name, read-done)
			done = read
		},
	}, func(t *textlog.Record) bool { s.line(t); return true })
	if s.next != nil {
		*s.next += uint64(stats.Bytes)
	}
	s.Lines, s.Bytes, s.Unparsed = s.Lines+stats.Lines, s.Bytes+stats.Bytes, s.Unparsed+stats.Unparsed
	s.binary += stats.Binary
	s.Format, s.Compressed = cmp.Or(stats.Format, s.Format), stats.Compression
	if s.kind == kindKmsg {
		s.Format = formatKmsg
	}
	s.blank = err == nil && stats.Records == 0 && stats.Unparsed == 0 && len(stats.Truncated) == 0
	if r.opts.Year == 0 {
		s.hint.headerYear = stats.HeaderYear
	}
	for _, t := range stats.Truncated {
		s.bad = append(s.bad, Unreadable{Source: s.Name, Offset: t.Offset, Bytes: t.Bytes, Why: t.Why})
	}
	return err
}

// findBoot resolves the boot that was asked for, over all journal files. A file that cannot be opened is reported when
// it is read.
func (r *reader) findBoot(ctx context.Context) error {
	if r.opts.Boot == "" {
		return nil
	}
	if id, err := hex.DecodeString(r.opts.Boot); err == nil && len(id) == len(r.boot) {
		r.boot = journalfile.ID(id)
		return nil
	}
	back, err := strconv.Atoi(r.opts.Boot)
	if err != nil || back > 0 {
		return fmt.Errorf("boot %q: %w; give 0, -1 and so on, or a boot ID of 32 digits", r.opts.Boot, ErrNoBoot)
	}
	first := map[journalfile.ID]uint64{} // one boot spans files
	for _, s := range r.sources {
		if s.kind != kindJournal {
			continue
		}
		if f, err := journalfile.Open(s.path); err == nil {
			boots, _ := f.Boots(ctx)
			for id, at := range boots {
				first[id] = min(cmp.Or(first[id], at), at)
			}
			_ = f.Close() // was only read
		}
	}
	all := slices.SortedFunc(maps.Keys(first), func(a, b journalfile.ID) int {
		return cmp.Or(cmp.Compare(first[a], first[b]), bytes.Compare(a[:], b[:]))
	})
	if len(all)+back < 1 {
		return fmt.Errorf("boot %s: %w, which holds %d", r.opts.Boot, ErrNoBoot, len(all))
	}
	r.boot = all[len(all)-1+back]
	return nil
}

// query is the range of time and the boot that were asked for, as a query of a journal file. Records are selected by
// their own time, and can have been written to the journal up to an hour later.
func (r *reader) query(s *source) journalfile.Query {
	q := journalfile.Query{Match: s.match, Boot: r.boot, Since: uint64(max(0, r.opts.Since.UnixMicro()))}
	if !r.opts.Until.IsZero() {
		q.Until = uint64(max(1, r.opts.Until.UnixMicro()+latenessMost))
	}
	return q
}

// journal reads one journal file.
func (r *reader) journal(ctx context.Context, s *source) error {
	s.Format = formatJournal
	f, err := journalfile.Open(s.path)
	if errors.Is(err, journalfile.ErrUnknownFormat) {
		return fmt.Errorf("%w; journalctl -o export --file FILE | kdiag journal reads it", err)
	}
	if s.next != nil && errors.Is(err, fs.ErrNotExist) {
		return nil // renamed since it was found
	}
	if err != nil {
		return plain(err)
	}
	defer f.Close() // was only read
	if id := f.FileID(); s.next != nil && id != "" && id != s.id {
		return nil // another file has its name since it was found: the next reading finds both
	}
	q := r.query(s)
	q.Next = s.next
	stats, err := f.Search(ctx, q, func(e *journalfile.Entry) bool { s.entry(e); return true })
	s.Lines, s.Bytes, s.skipped = s.Lines+stats.Entries, stats.Bytes, stats.Skipped
	if stats.From != 0 {
		s.From, s.To = earlier(s.From, timeOf(int64(stats.From))), later(s.To, timeOf(int64(stats.To)))
	}
	for _, u := range stats.Unreadable {
		s.bad = append(s.bad, Unreadable{Source: s.Name, Offset: u.Offset, Bytes: u.Bytes, Why: u.Why})
	}
	if n := stats.Unresolved; n > 0 {
		s.Problem = fmt.Sprintf("damaged: %d records could not be found", n)
	}
	r.advance(s.name, s.size)
	return err
}

// entry takes an entry of a journal whose message match has accepted.
func (s *source) entry(e *journalfile.Entry) {
	r := textlog.Entry(e.Message, e.Labels())
	if e.Realtime != 0 {
		r.Outer = klog.Stamp{Micros: int64(e.Realtime), Known: true, Year: true, Zone: true}
	}
	if !bytes.HasSuffix(e.Message, r.Message) { // klog's JSON, or colours
		s.found = s.reader.m.full.Match(r.Message, s.found[:0])
	}
	s.take(r)
}
