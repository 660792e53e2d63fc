package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/klog"
)

// A bootFilter is the boot that was asked for.
type bootFilter struct {
	id    journalfile.ID
	texts bool // there are text logs, to which it does not apply
}

// findBoot resolves the boot that was asked for, over all journal files.
func (r *reading) findBoot(ctx context.Context) error {
	if r.opts.Boot == "" {
		return nil
	}
	r.boot = &bootFilter{}
	if id, err := hex.DecodeString(r.opts.Boot); err == nil && len(id) == len(r.boot.id) {
		copy(r.boot.id[:], id)
		return nil
	}
	back, err := strconv.Atoi(r.opts.Boot)
	if err != nil || back > 0 {
		return fmt.Errorf("boot %q: %w; give 0, -1 and so on, or a boot ID of 32 digits", r.opts.Boot, ErrNoBoot)
	}
	var all []journalfile.Boot
	eachJournal(r.jobs, func(f *journalfile.File) bool {
		boots, err := f.Boots(ctx)
		if err == nil {
			all = append(all, boots...)
		}
		return false
	})
	r.boot.texts = slices.ContainsFunc(r.jobs, func(j *job) bool { return j.kind != jobJournal })
	slices.SortFunc(all, func(a, b journalfile.Boot) int { return cmp.Compare(a.First, b.First) })
	var order []journalfile.ID
	for _, b := range all {
		if !slices.Contains(order, b.ID) {
			order = append(order, b.ID)
		}
	}
	i := len(order) - 1 + back
	if i < 0 {
		return fmt.Errorf("boot %s: %w, which holds %d", r.opts.Boot, ErrNoBoot, len(order))
	}
	r.boot.id = order[i]
	return nil
}

// query is the range of time and the boot that were asked for, as a journal file wants them. Records are wanted by
// their own time, and can have been written to the journal up to an hour later.
func (r *reading) query(c *collector) journalfile.Query {
	q := journalfile.Query{Match: c.match}
	if !r.opts.Since.IsZero() {
		q.Since = uint64(max(0, r.opts.Since.UnixMicro()))
	}
	if !r.opts.Until.IsZero() {
		q.Until = uint64(max(1, r.opts.Until.UnixMicro()+latenessMost))
	}
	if r.boot != nil {
		q.Boot = r.boot.id
	}
	return q
}

// journal reads one journal file.
func (r *reading) journal(ctx context.Context, j *job, c *collector) ([]Unreadable, error) {
	c.Format = formatJournal
	f, err := journalfile.Open(j.path)
	switch {
	case errors.Is(err, journalfile.ErrUnknownFormat):
		return nil, r.journalctl(ctx, j, c)
	case err != nil:
		return nil, plain(err)
	}
	defer f.Close() // was only read
	take := entryTaker(c)
	stats, err := f.Search(ctx, r.query(c), func(e *journalfile.Entry) bool { take(e); return true })
	c.Lines, c.Bytes, c.skipped = stats.Entries, stats.Bytes, stats.Skipped
	if stats.From != 0 {
		c.From, c.To = timeOf(int64(stats.From)), timeOf(int64(stats.To))
	}
	var bad []Unreadable
	for _, u := range stats.Unreadable {
		bad = append(bad, Unreadable{Source: c.Name, Offset: u.Offset, Bytes: u.Bytes, Why: u.Why})
	}
	if n := stats.Unresolved; n > 0 {
		c.Problem = fmt.Sprintf("damaged: %d records could not be found", n)
	}
	r.advance(j.name, j.size)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return bad, err
}

// entryTaker returns a function that hands entries of a journal to the collector.
func entryTaker(c *collector) func(*journalfile.Entry) {
	var r record
	fields := senderFields()
	boots := map[journalfile.ID]string{}
	return func(e *journalfile.Entry) {
		r = record{msg: e.Message, mono: int64(e.Monotonic), senders: r.senders[:0]}
		if e.Realtime != 0 {
			r.outer = klog.Stamp{Micros: int64(e.Realtime), Known: true, Year: true, Zone: true}
		}
		if e.Boot != (journalfile.ID{}) {
			if _, ok := boots[e.Boot]; !ok {
				boots[e.Boot] = hex.EncodeToString(e.Boot[:])
			}
			r.boot = boots[e.Boot]
		}
		for field := range e.Labels() {
			name, value, _ := bytes.Cut(field, []byte("="))
			switch string(name) {
			case "_HOSTNAME":
				r.host = c.hostOf(value)
			case "_PID":
				r.pid, _ = strconv.Atoi(string(value))
			default:
				if len(c.units) > 0 && slices.Contains(fields, string(name)) { // nobody else asks who sent it
					r.senders = append(r.senders, string(value))
				}
			}
		}
		innerOf(&r)
		c.take(&r)
	}
}

// innerOf reads the program's own stamp and process off a message, if it has them.
func innerOf(r *record) {
	msg := r.msg
	if h, rest, ok := klog.ParseHeader(msg); ok {
		r.inner, r.msg = h.Stamp, rest
		if h.PID != 0 {
			r.pid = h.PID
		}
		return
	}
	if i := bytes.IndexByte(msg[:min(len(msg), 64)], '{'); i >= 0 &&
		bytes.HasSuffix(bytes.TrimSpace(msg), []byte("}")) {
		if s, ok := klog.ParseJSON(msg[i:]); ok {
			r.inner = s
		}
	}
}

// eachJournal opens the journal files among the jobs, the newest first, until stop returns true, and reports whether
// it did. What cannot be opened is reported when it is read.
func eachJournal(jobs []*job, stop func(*journalfile.File) bool) bool {
	for _, j := range slices.Backward(jobs) {
		if j.kind != jobJournal {
			continue
		}
		f, err := journalfile.Open(j.path)
		if err != nil {
			continue
		}
		done := stop(f)
		_ = f.Close() // was only read
		if done {
			return true
		}
	}
	return false
}

// unknownUnit reports whether no journal that was read has ever had a record of a unit or identifier. Without a
// journal nobody knows.
func (r *reading) unknownUnit(unit string) bool {
	looked := false
	known := eachJournal(r.jobs, func(f *journalfile.File) bool {
		looked = true
		return slices.ContainsFunc(senderFields(), func(field string) bool {
			return holds(f, field, unit) ||
				holds(f, field, unit+".service")
		})
	})
	return looked && !known
}

// senderFields are the fields of a journal that name who wrote an entry.
func senderFields() []string {
	return []string{"_SYSTEMD_UNIT", "UNIT", "SYSLOG_IDENTIFIER", "_SYSTEMD_USER_UNIT", "CONTAINER_NAME"}
}

// holds reports whether a journal has records with a value of a field, or cannot tell.
func holds(f *journalfile.File, field, value string) bool {
	found, err := f.Has(field, value)
	return found || err != nil
}

// hasKernel reports whether one of the journal files holds messages of the kernel, or cannot tell.
func hasKernel(jobs []*job) bool {
	return eachJournal(jobs, func(f *journalfile.File) bool { return holds(f, "_TRANSPORT", "kernel") })
}
