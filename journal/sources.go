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
	"os"
	"slices"
	"strconv"

	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/textlog"
)

// sampleEvery is how many stamped records of a text lie between two whose stamps are looked at, so that its zone, its
// year and its range become known without reading every stamp.
const sampleEvery = 256

// text reads a file of text or a stream.
func (r *reading) text(ctx context.Context, j *job, c *collector) error {
	var in io.Reader
	switch {
	case j.next != nil && (j.size <= int64(*j.next) || j.changed.Before(r.opts.Since)):
		return nil
	case j.kind == jobStream:
		in = &pipeReader{ctx, j.reader}
	case j.kind == jobKmsg:
		k, err := r.openKmsg()
		if err != nil {
			return err
		}
		defer k.close()
		in = k
	default:
		f, err := os.Open(j.path)
		if err != nil {
			return plain(err)
		}
		defer f.Close() // was only read
		in = f
		if j.next != nil {
			in = io.NewSectionReader(f, int64(*j.next), math.MaxInt64)
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
		Next: c.next, Longest: c.m.full.Longest(), SampleEvery: sampleEvery,
		Progress: func(read int64) {
			r.advance(j.name, read-done)
			done = read
		},
	}, func(t *textlog.Record) bool { c.take(t); return true })
	if j.next != nil {
		*j.next += uint64(stats.Bytes)
	}
	c.Lines, c.Bytes, c.Unparsed = c.Lines+stats.Lines, c.Bytes+stats.Bytes, c.Unparsed+stats.Unparsed
	c.binary += stats.Binary
	c.Format, c.Compressed = cmp.Or(stats.Format, c.Format), stats.Compression
	if j.kind == jobKmsg {
		c.Format = formatKmsg
	}
	c.blank = err == nil && stats.Records == 0 && stats.Unparsed == 0 && len(stats.Truncated) == 0
	if r.opts.Year == 0 {
		c.hint.headerYear = stats.HeaderYear
	}
	for _, t := range stats.Truncated {
		j.bad = append(j.bad, Unreadable{Source: c.Name, Offset: t.Offset, Bytes: t.Bytes, Why: t.Why})
	}
	return err
}

// findBoot resolves the boot that was asked for, over all journal files. What cannot be opened is reported when it is
// read.
func (r *reading) findBoot(ctx context.Context) error {
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
	for _, j := range r.jobs {
		if j.kind != jobJournal {
			continue
		}
		if f, err := journalfile.Open(j.path); err == nil {
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
func (r *reading) query(c *collector) journalfile.Query {
	q := journalfile.Query{Match: c.match, Boot: r.boot, Since: uint64(max(0, r.opts.Since.UnixMicro()))}
	if !r.opts.Until.IsZero() {
		q.Until = uint64(max(1, r.opts.Until.UnixMicro()+latenessMost))
	}
	return q
}

// journal reads one journal file.
func (r *reading) journal(ctx context.Context, j *job, c *collector) error {
	c.Format = formatJournal
	f, err := journalfile.Open(j.path)
	if errors.Is(err, journalfile.ErrUnknownFormat) {
		return fmt.Errorf("%w; journalctl -o export --file FILE | kdiag journal reads it", err)
	}
	if j.next != nil && errors.Is(err, fs.ErrNotExist) {
		return nil // renamed since it was found
	}
	if err != nil {
		return plain(err)
	}
	defer f.Close() // was only read
	if id := f.FileID(); j.next != nil && id != "" && id != j.id {
		return nil // another file has its name since it was found: the next reading finds both
	}
	q := r.query(c)
	q.Next = j.next
	stats, err := f.Search(ctx, q, func(e *journalfile.Entry) bool { c.entry(e); return true })
	c.Lines, c.Bytes, c.skipped = c.Lines+stats.Entries, stats.Bytes, stats.Skipped
	if stats.From != 0 {
		c.From, c.To = earlier(c.From, timeOf(int64(stats.From))), later(c.To, timeOf(int64(stats.To)))
	}
	for _, u := range stats.Unreadable {
		j.bad = append(j.bad, Unreadable{Source: c.Name, Offset: u.Offset, Bytes: u.Bytes, Why: u.Why})
	}
	if n := stats.Unresolved; n > 0 {
		c.Problem = fmt.Sprintf("damaged: %d records could not be found", n)
	}
	r.advance(j.name, j.size)
	return err
}

// entry hands an entry of a journal to the collector.
func (c *collector) entry(e *journalfile.Entry) {
	r := textlog.Entry(e.Message, e.Labels())
	if e.Realtime != 0 {
		r.Outer = klog.Stamp{Micros: int64(e.Realtime), Known: true, Year: true, Zone: true}
	}
	c.take(r)
}
