package journal

import (
	"bytes"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/textlog"
)

const (
	second = int64(1e6) // µs
	minute = 60 * second
	hour   = 60 * minute
)

// A timestamp is when a record was written, by its own stamps. Stamps with a zone are in UTC already; those without a
// year count in 1972, as in [klog.Stamp].
type timestamp struct {
	inner  klog.Stamp // of the program
	outer  klog.Stamp // of journald, syslog or the container runtime, or since the machine's start
	at     int64      // the instant in µs since 1970, if known
	known  bool
	stated bool // outer is an instant that the text of the record states
	source uint16
	seq    uint32 // place in the source
}

func newTimestamp(r *textlog.Record, seq uint32) timestamp {
	return timestamp{inner: utc(r.Inner), outer: utc(r.Outer), seq: seq}
}

func utc(s klog.Stamp) klog.Stamp {
	if s.Zone {
		s.Micros, s.Offset = s.Micros-int64(s.Offset)*second, 0
	}
	return s
}

// dated reports whether a stamp has a date.
func dated(s klog.Stamp) bool { return s.Known && !s.Monotonic }

// raw is the best stamp without any assumption, to compare records of one source that follow each other.
func (t *timestamp) raw() (micros int64, ok bool) {
	if t.inner.Known {
		return t.inner.Micros, true
	}
	return t.outer.Micros, t.outer.Known
}

// time returns the instant for a report, or nil.
func (t *timestamp) time() *time.Time {
	if !t.known {
		return nil
	}
	return timeOf(t.at)
}

// timeOf makes a time for the report: UTC, to the microsecond.
func timeOf(us int64) *time.Time {
	t := time.UnixMicro(us).UTC()
	return &t
}

const (
	// sane is how far the two stamps of one record may lie apart, in µs, before the inner one is taken for a misprint.
	sane = 26 * hour
	// punctual is how far an outer stamp may lie after the inner one, in µs, for the pair to show the zone.
	punctual     = 3 * second
	latenessMost = hour       // later than this, a line is rather of another zone
	earliness    = 2 * second // an outer stamp in whole seconds may seem earlier by truncation
)

// A calendar turns the stamps of one source into instants. It is built from a sample of the source's stamps.
type calendar struct {
	hint    calendarHint
	near    *int64 // an instant of the log whose year is known; nil: the hint must do
	year    string // how years are known; empty: there is no date
	zone    int64  // of stamps that name none, µs east of UTC, if zoned
	zoned   bool
	stated  bool   // by the text of records, which goes before a wrapper that labels local time as UTC
	assumed bool   // the zone of the hint was needed
	some    int64  // one of the readings
	booted  *int64 // the instant at which the monotonic clock began
}

// A calendarHint holds facts about a source's times that do not come from its stamps.
type calendarHint struct {
	headerYear int       // of the first record; 0: unknown
	notAfter   time.Time // no record is later
	how        string    // this is known
	loc        *time.Location
	descending bool // newest first
}

// newCalendar learns how to read the stamps of a source. stamps are in the order of the text.
func newCalendar(stamps []timestamp, hint calendarHint) *calendar {
	c := &calendar{hint: hint}
	var first *klog.Stamp // without a year
	for _, t := range stamps {
		for _, s := range []klog.Stamp{t.outer, t.inner} {
			switch {
			case !dated(s):
			case s.Year:
				c.near = &s.Micros
			case first == nil:
				first = &s
			}
		}
	}
	switch {
	case first == nil && c.near == nil:
	case first == nil:
		c.year = "written"
	case c.near != nil:
		c.year = "by other stamps in the log"
	case hint.headerYear != 0:
		c.near, c.year = new(withYear(first.Micros, hint.headerYear)), "by a header in the log"
	default:
		c.year = hint.how
	}
	c.learnZone(stamps)
	for _, t := range stamps {
		if at, ok := c.instant(t); ok && t.outer.Monotonic {
			c.booted = new(at - t.outer.Micros)
			break
		}
	}
	return c
}

// withYear moves a reading from its own year to another.
func withYear(us int64, year int) int64 {
	t := time.UnixMicro(us).UTC()
	return t.AddDate(year-t.Year(), 0, 0).UnixMicro()
}

// nearYear gives a reading the year that brings it nearest to another.
func nearYear(us, near int64) int64 {
	year := time.UnixMicro(near).UTC().Year()
	best := withYear(us, year)
	for _, y := range []int{year - 1, year + 1} {
		if t := withYear(us, y); abs(t-near) < abs(best-near) {
			best = t
		}
	}
	return best
}

func abs(x int64) int64 { return max(x, -x) }

// reading returns a stamp with a year: its own, else the one that brings it nearest to the record's other stamp or to
// another of the log, else the last in which it is not too late.
func (c *calendar) reading(s, other klog.Stamp) int64 {
	switch limit := c.hint.notAfter.Add(24 * time.Hour); {
	case s.Year:
		return s.Micros
	case dated(other) && other.Year:
		return nearYear(s.Micros, other.Micros)
	case c.near != nil:
		return nearYear(s.Micros, *c.near)
	default:
		us := withYear(s.Micros, limit.Year())
		if us > limit.UnixMicro() {
			us = withYear(s.Micros, limit.Year()-1)
		}
		return us
	}
}

// learnZone learns the zone of stamps that name none from records whose other stamp names one.
func (c *calendar) learnZone(stamps []timestamp) {
	votes := map[int64]int{}
	most, nearest := 0, int64(0)
	for _, t := range stamps {
		inner, outer := dated(t.inner), dated(t.outer)
		if !inner && !outer {
			continue
		}
		d := c.reading(t.inner, t.outer) - c.reading(t.outer, t.inner)
		switch {
		case inner && outer && !t.inner.Zone && t.outer.Zone:
		case inner && outer && t.inner.Zone && !t.outer.Zone:
			d = -d
		default:
			c.some = c.reading(t.inner, t.outer)
			if !inner {
				c.some = c.reading(t.outer, t.inner)
			}
			c.assumed = c.assumed || inner && !t.inner.Zone || outer && !t.outer.Zone
			continue
		}
		zone, late, ok := offsetAbove(d)
		switch {
		case abs(d) > sane || !ok:
		case late <= punctual && (t.stated || !c.stated):
			c.stated = t.stated
			if votes[zone]++; votes[zone] > most || t.stated {
				c.zone, most, c.zoned = zone, votes[zone], true
			}
		case t.outer.Zone && most == 0 && (!c.zoned || d > nearest): // the least late one is nearest to the truth
			c.zone, nearest, c.zoned = zone, d, true
		}
	}
	c.assumed = c.assumed && !c.zoned
}

// instant resolves a record's stamps. klog's own stamp goes before the outer one: lines can be flushed minutes late.
func (c *calendar) instant(t timestamp) (int64, bool) {
	out := c.reading(t.outer, t.inner)
	if in := c.reading(t.inner, t.outer); t.inner.Known && (!dated(t.outer) || abs(in-out) <= sane) {
		// A punctual pair shows its own zone, so that daylight saving in the middle of a log is followed.
		own, late, ok := offsetAbove(in - out)
		if t.outer.Zone && !t.inner.Zone && ok && late <= punctual && !c.stated {
			return in - own, true
		}
		return c.utc(t.inner, in), true
	}
	switch {
	case dated(t.outer):
		return c.utc(t.outer, out), true
	case c.booted != nil && t.outer.Monotonic:
		return *c.booted + t.outer.Micros, true
	}
	return 0, false
}

// utc takes the zone off the reading of a stamp.
func (c *calendar) utc(s klog.Stamp, us int64) int64 {
	switch {
	case s.Zone:
		return us
	case c.zoned:
		return us - c.zone
	}
	return inLocation(us, c.hint.loc)
}

// inLocation reads a clock that shows the time of a location.
func inLocation(us int64, loc *time.Location) int64 {
	t := time.UnixMicro(us).UTC()
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), loc).UnixMicro()
}

// location returns the zone of the clock that the source was written by; nil if its stamps do not depend on one.
func (c *calendar) location() *time.Location {
	offset := int(c.zone / second)
	if c.assumed {
		_, offset = time.UnixMicro(c.some).In(c.hint.loc).Zone()
	}
	if !c.zoned && !c.assumed {
		return nil
	}
	return time.FixedZone(time.Unix(0, 0).In(time.FixedZone("", offset)).Format("-07:00"), offset)
}

// describe returns how zone and year are known, for the report.
func (c *calendar) describe() (zone, year string) {
	switch {
	case c.assumed:
		zone = c.location().String() + ", assumed: the stamps name none"
	case c.zoned:
		zone = c.location().String() + ", by the stamps that name one"
	}
	return zone, c.year
}

// offsets are the differences from UTC that clocks have somewhere, in minutes, ascending.
func offsets() []int64 {
	return []int64{
		-720, -660, -600, -570, -540, -480, -420, -360, -300, -240, -210, -180, -120, -60, 0, 60, 120, 180, 210, 240,
		270, 300, 330, 345,
		360, 390, 420, 480, 525, 540, 570, 600, 630, 660, 720, 765, 780, 825, 840,
	}
}

// offsetAbove returns the smallest offset, in µs, that is at least diff, and how much larger it is. An outer stamp is
// never earlier than the inner one, so the difference inner minus outer is at most the zone: the rest is
// lateness.
func offsetAbove(diff int64) (zone, late int64, ok bool) {
	for _, m := range offsets() {
		if zone = m * minute; zone >= diff-earliness {
			return zone, zone - diff, diff >= -14*hour
		}
	}
	return 0, 0, false
}

// conditionTime reads when a node condition was written: LastHeartbeatTime, as Go prints a time or as JSON has it. It
// states the year and the zone that klog's header next to it lacks.
//
//	{Type:Ready Status:False LastHeartbeatTime:2017-05-05 13:59:56.872865742 +0000 UTC m=+1.5 LastTransition...
//	{"type":"Ready","status":"False","lastHeartbeatTime":"2026-11-21T00:52:12Z","lastTransitionTime":...
func conditionTime(msg []byte) (klog.Stamp, bool) {
	layout, text := time.RFC3339, ""
	if _, rest, found := bytes.Cut(msg, []byte("LastHeartbeatTime:")); found {
		layout = "2006-01-02 15:04:05 -0700"
		if parts := bytes.Fields(rest[:min(len(rest), 64)]); len(parts) >= 3 {
			text = string(bytes.Join(parts[:3], []byte(" ")))
		}
	} else if _, rest, found := bytes.Cut(msg, []byte("lastHeartbeatTime")); found {
		rest = bytes.TrimLeft(rest[:min(len(rest), 64)], `\": `)
		text = string(rest[:max(0, bytes.IndexAny(rest, `\", }`))])
	}
	t, err := time.Parse(layout, text)
	return klog.Stamp{Micros: t.UnixMicro(), Known: true, Year: true, Zone: true}, err == nil
}
