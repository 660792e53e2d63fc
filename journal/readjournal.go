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
	for i := range r.jobs {
		if r.jobs[i].kind != jobJournal {
			r.boot.texts = true
			continue
		}
		f, err := journalfile.Open(r.jobs[i].path)
		if err != nil {
			continue // told when it is read
		}
		boots, err := f.Boots(ctx)
		_ = f.Close() // was only read
		if err != nil {
			continue
		}
		all = append(all, boots...)
	}
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

// query is the range of time and the boot that were asked for, as a journal file wants them. Records are wanted by their
// own time, and can have been written to the journal up to an hour later.
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
	c.part.source.Format = formatJournal
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
	s := &c.part.source
	s.Lines, s.Bytes = stats.Entries, stats.Bytes
	c.part.skipped = stats.Skipped
	if stats.From != 0 {
		s.From, s.To = timeOf(int64(stats.From)), timeOf(int64(stats.To))
	}
	var bad []Unreadable
	for _, u := range stats.Unreadable {
		bad = append(bad, Unreadable{Source: s.Name, Offset: u.Offset, Bytes: u.Bytes, Why: u.Why})
	}
	if n := stats.Unresolved; n > 0 {
		s.Problem = fmt.Sprintf("damaged: %d records could not be found", n)
	}
	r.progress(j.name, j.size)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return bad, err
}

// entryTaker returns a function that hands entries of a journal to the collector.
func entryTaker(c *collector) func(*journalfile.Entry) {
	var r record
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
				r.host = c.hostName(value)
			case "_PID":
				r.pid, _ = strconv.Atoi(string(value))
			case "_SYSTEMD_UNIT", "UNIT", "SYSLOG_IDENTIFIER", "_SYSTEMD_USER_UNIT", "CONTAINER_NAME":
				if len(c.units) > 0 { // nobody else asks who sent it
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
	if i := bytes.IndexByte(msg[:min(len(msg), 64)], '{'); i >= 0 && bytes.HasSuffix(bytes.TrimSpace(msg), []byte("}")) {
		if h, _, ok := klog.ParseJSON(msg[i:]); ok {
			r.inner = h.Stamp
		}
	}
}

// silentUnit reports whether no journal that was read has ever heard of a unit. Without a journal nobody knows.
func (r *reading) silentUnit(unit string) bool {
	looked := false
	for i := range r.jobs {
		if r.jobs[i].kind != jobJournal || r.parts[i] == nil {
			continue
		}
		f, err := journalfile.Open(r.jobs[i].path)
		if err != nil {
			return false
		}
		known := knowsUnit(f, unit)
		_ = f.Close() // was only read
		if known {
			return false
		}
		looked = true
	}
	return looked
}

// knowsUnit reports whether a journal has records of a unit or identifier, or cannot tell.
func knowsUnit(f *journalfile.File, unit string) bool {
	for _, field := range []string{"_SYSTEMD_UNIT", "UNIT", "SYSLOG_IDENTIFIER", "_SYSTEMD_USER_UNIT", "CONTAINER_NAME"} {
		if knows(f, field, unit) || knows(f, field, unit+".service") {
			return true
		}
	}
	return false
}

// knows reports whether a journal has records with a value of a field, or cannot tell.
func knows(f *journalfile.File, field, value string) bool {
	known, err := f.Has(field, value)
	return known || err != nil
}

// hasKernel reports whether one of the journal files holds messages of the kernel, or cannot tell. The newest is asked first.
func hasKernel(jobs []job) bool {
	for i := len(jobs) - 1; i >= 0; i-- {
		if jobs[i].kind != jobJournal {
			continue
		}
		f, err := journalfile.Open(jobs[i].path)
		if err != nil {
			continue // told when it is read
		}
		known := knows(f, "_TRANSPORT", "kernel")
		_ = f.Close() // was only read
		if known {
			return true
		}
	}
	return false
}
