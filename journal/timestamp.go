package journal

import (
	"time"
	"unique"

	"github.com/kdiag/kdiag/journal/klog"
)

const (
	second = int64(1e6) // µs
	minute = 60 * second
	hour   = 60 * minute
)

// What is known of a timestamp, as bits of timestamp.flags.
const (
	innerKnown uint8 = 1 << iota
	innerYear
	innerZone
	outerKnown
	outerYear
	outerZone
	resolved // inner is the instant in microseconds since 1970 UTC; nothing else counts any more
)

// A timestamp is when a record was written, by all of its stamps, small enough to keep hundreds of thousands. Stamps
// with a zone are UTC already; those without a year count in 1972, as in [klog.Stamp].
type timestamp struct {
	inner  int64                 // the program's own stamp; µs
	outer  int64                 // the stamp of journald, syslog or the container runtime; µs
	mono   int64                 // µs since the machine's start, by the outer clock; 0: unknown
	boot   unique.Handle[string] // the boot ID; the zero Handle: unknown
	seq    uint32                // place in the source
	source uint16
	flags  uint8
}

// newTimestamp packs the stamps of a record.
func newTimestamp(r *record) timestamp {
	m := timestamp{mono: r.mono}
	if r.boot != "" {
		m.boot = unique.Make(r.boot)
	}
	if r.inner.Known && !r.inner.Monotonic {
		m.inner = micros(r.inner)
		m.flags |= bits(r.inner)
	}
	switch {
	case r.outer.Known && !r.outer.Monotonic:
		m.outer = micros(r.outer)
		m.flags |= bits(r.outer) * (outerKnown / innerKnown)
	case r.outer.Known && m.mono == 0:
		m.mono = r.outer.Micros
	}
	return m
}

func micros(s klog.Stamp) int64 {
	if s.Zone {
		return s.Micros - int64(s.Offset)*second
	}
	return s.Micros
}

// bits returns the flags of an inner stamp.
func bits(s klog.Stamp) uint8 {
	flags := innerKnown
	if s.Year {
		flags |= innerYear
	}
	if s.Zone {
		flags |= innerZone
	}
	return flags
}

// has reports whether all of the bits are set.
func (m *timestamp) has(bits uint8) bool { return m.flags&bits == bits }

// raw is the best stamp without any assumption, to compare records of one source that follow each other.
func (m *timestamp) raw() (micros int64, ok bool) {
	switch {
	case m.flags&(innerKnown|resolved) != 0:
		return m.inner, true
	case m.flags&outerKnown != 0:
		return m.outer, true
	case m.mono != 0:
		return m.mono, true
	}
	return 0, false
}

// at returns the instant, once it is resolved.
func (m *timestamp) at() (int64, bool) { return m.inner, m.flags&resolved != 0 }

// instant returns the resolved time for a report, or nil.
func (m *timestamp) instant() *time.Time {
	us, ok := m.at()
	if !ok {
		return nil
	}
	return timeOf(us)
}

// time returns the resolved time, or the zero time.
func (m *timestamp) time() time.Time {
	if t := m.instant(); t != nil {
		return *t
	}
	return time.Time{}
}

// timeOf makes a time for the report: UTC, to the microsecond.
func timeOf(us int64) *time.Time {
	t := time.UnixMicro(us).UTC()
	return &t
}

// before compares two timestamps of one source by their stamps, else by their place.
func before(a, b timestamp) bool {
	ta, aok := a.raw()
	tb, bok := b.raw()
	if aok && bok && ta != tb {
		return ta < tb
	}
	return a.seq < b.seq
}
