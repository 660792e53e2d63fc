package journal

import (
	"fmt"
	"slices"
	"sort"
	"time"
	"unique"
)

// sane is how far the two stamps of one record may lie apart, in µs, before the inner one is taken for a misprint.
const sane = 26 * hour

// A dated is a record whose text tells the instant of its inner stamp, as node conditions do.
type dated struct {
	seq     uint32
	inner   int64 // as in timestamp
	year    bool  // inner has its year
	instant int64
}

// A calendar turns the stamps of one source into instants. It is built from a sample of the source's stamps.
type calendar struct {
	base    []timestamp // stamps that have a stamp, in the order of the text
	local   []int64     // their readings with year, as if the clock showed UTC; base stamp only
	zone    zones       // of inner stamps
	outer   *int64      // zone of outer stamps without one, relative to UTC; nil: as loc
	loc     *time.Location
	boots   map[unique.Handle[string]]int64 // instant minus monotonic clock
	year    string                          // how the year is known
	zoneHow string                          // how the zone is known
	assumed bool                            // the zone is an assumption
}

// A calendarHint is what is known of a source beside its stamps.
type calendarHint struct {
	year       int // of the first record, by a header; 0: unknown
	yearHow    string
	lastYear   int       // of the last record, by the person who asked; 0: unknown
	notAfter   time.Time // no record is later
	notHow     string
	loc        *time.Location
	zone       *int64 // zone of inner stamps by other sources of the same host
	zoneHow    string
	descending bool // newest first
}

// newCalendar learns how to read the stamps of a source. stamps are in the order of the text.
func newCalendar(stamps []timestamp, texts []dated, hint calendarHint) *calendar {
	c := &calendar{loc: hint.loc, boots: map[unique.Handle[string]]int64{}}
	for _, m := range stamps {
		if m.flags&(innerKnown|outerKnown) != 0 {
			c.base = append(c.base, m)
		}
	}
	c.years(texts, hint)
	c.zones(texts, hint)
	for _, m := range c.base {
		if _, ok := c.boots[m.boot]; ok || m.mono == 0 {
			continue
		}
		if t, ok := c.instant(m); ok {
			c.boots[m.boot] = t - m.mono
		}
	}
	return c
}

// baseStamp is the stamp that orders a record: the outer one, else the inner one.
func baseStamp(m timestamp) (us int64, year bool) {
	if m.has(outerKnown) {
		return m.outer, m.has(outerYear)
	}
	return m.inner, m.has(innerYear)
}

// withYear moves a reading from its own year to another.
func withYear(us int64, year int) int64 {
	t := time.UnixMicro(us).UTC()
	return time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC).UnixMicro()
}

// nearYear gives a reading without year the one that brings it nearest to another.
func nearYear(us, near int64) int64 {
	y := time.UnixMicro(near).UTC().Year()
	best := withYear(us, y)
	for _, y := range []int{y - 1, y + 1} {
		if t := withYear(us, y); abs(t-near) < abs(best-near) {
			best = t
		}
	}
	return best
}

func abs(x int64) int64 {
	if x < 0 {
		return -x
	}
	return x
}

// years gives each sight its reading with a year.
func (c *calendar) years(texts []dated, hint calendarHint) {
	c.local = make([]int64, len(c.base))
	rel := make([]int, len(c.base)) // year counted from the first sight
	missing, written := false, -1
	var last, shift int64 = 0, 0
	for i, m := range c.base {
		us, year := baseStamp(m)
		c.local[i] = us
		if year {
			written = i
			continue
		}
		shift += rollover(last, us, hint.descending)
		missing, last = true, us
		rel[i] = int(shift)
	}
	if !missing {
		c.year = "written"
		return
	}
	first, how := c.firstYear(rel, written, texts, hint)
	c.year = how
	for i, m := range c.base {
		if _, year := baseStamp(m); !year {
			c.local[i] = withYear(c.local[i], first+rel[i])
		}
	}
}

// rollover returns by how many years a log moved from one reading without year to the next: December to January, or
// back where the log is newest first or two lines changed places around New Year.
func rollover(last, us int64, descending bool) int64 {
	const half, swap = 183 * 24 * hour, 363 * 24 * hour
	d := us - last
	switch {
	case last == 0:
	case descending && d > half, !descending && d > swap:
		return -1
	case descending && d < -swap, !descending && d < -half:
		return 1
	}
	return 0
}

// firstYear finds the year of the first sight, and says how it is known.
func (c *calendar) firstYear(rel []int, written int, texts []dated, hint calendarHint) (int, string) {
	n := len(c.base)
	at := func(seq uint32) int { // the sight at or before a place in the text
		i := sort.Search(n, func(i int) bool { return c.base[i].seq > seq })
		return max(0, i-1)
	}
	for _, d := range texts {
		i := at(d.seq)
		return time.UnixMicro(nearYear(c.local[i], d.instant)).UTC().Year() - rel[i], "by the text of a node condition"
	}
	for i, m := range c.base {
		if m.has(innerKnown|innerYear) && !m.has(outerYear) && m.has(outerKnown) {
			return time.UnixMicro(nearYear(c.local[i], m.inner)).UTC().Year() - rel[i], "by the program's own stamps"
		}
	}
	if written >= 0 {
		for i := range c.base {
			if _, year := baseStamp(c.base[i]); !year {
				return time.UnixMicro(nearYear(c.local[i], c.local[written])).UTC().Year() - rel[i], "by neighbouring records"
			}
		}
	}
	switch {
	case hint.lastYear != 0:
		return hint.lastYear - slices.Max(rel), "as given"
	case hint.year != 0:
		return hint.year, hint.yearHow
	}
	limit := hint.notAfter.Add(24 * time.Hour).UnixMicro()
	year := hint.notAfter.UTC().Year() + 1
	for ; ; year-- {
		latest := int64(-1 << 62)
		for i, m := range c.base {
			if _, y := baseStamp(m); !y {
				latest = max(latest, withYear(c.local[i], year+rel[i]))
			}
		}
		if latest <= limit {
			return year, hint.notHow
		}
	}
}

// zones learns the zone of inner stamps from the outer ones and from the text of conditions.
func (c *calendar) zones(texts []dated, hint calendarHint) {
	var diffs, plain []int64
	anyInner, anyBare, zoned := false, false, false
	for i, m := range c.base {
		if !m.has(innerKnown) {
			anyBare = anyBare || !m.has(outerZone)
			continue
		}
		anyInner = true
		zoned = zoned || m.has(innerZone)
		if m.has(innerZone) || !m.has(outerKnown) {
			continue
		}
		d := c.reading(m, c.local[i]) - c.local[i]
		switch {
		case abs(d) > sane:
		case m.has(outerZone):
			diffs = append(diffs, d)
		default:
			plain = append(plain, -d)
		}
	}
	how := "by the outer stamps"
	c.zone = newZones(diffs)
	if z := newZones(textZones(texts)); z.known && (!c.zone.known || len(z.strong) == 1 && c.zone.strong[z.main] == 0) {
		// The program's own words go before a wrapper that labels local time as UTC.
		z.fixed = c.zone.known && z.main != c.zone.main
		c.zone, how = z, "by the text of node conditions"
		if z.fixed {
			how += "; the outer stamps say otherwise"
		}
	}
	switch {
	case c.zone.known:
		c.zoneHow = zoneText(c.zone.main) + ", " + how
		if len(c.zone.strong) > 1 {
			c.zoneHow += ", and it changes within the log"
		}
	case hint.zone != nil && anyInner && !zoned:
		c.zone = zones{table: offsets(), known: true, main: *hint.zone}
		c.zoneHow = zoneText(*hint.zone) + ", " + hint.zoneHow
	case anyInner && !zoned || anyBare:
		c.assumed = true
	}
	c.outerZone(plain)
}

// textZones returns by how much the stamps of conditions are ahead of the instant that the condition's text tells.
func textZones(texts []dated) []int64 {
	var out []int64
	for _, d := range texts {
		us := d.inner
		if !d.year {
			us = nearYear(us, d.instant)
		}
		if off := us - d.instant; abs(off) <= sane {
			out = append(out, quarter(off))
		}
	}
	return out
}

// quarter rounds to a quarter of an hour, the step of the world's zones.
func quarter(us int64) int64 {
	const q = 15 * minute
	if us < 0 {
		return -quarter(-us)
	}
	return (us + q/2) / q * q
}

// outerZone relates outer stamps without a zone to the inner ones of the same records. leads are outer minus inner: the
// difference of their zones plus lateness.
func (c *calendar) outerZone(leads []int64) {
	if len(leads) > 0 && c.zone.known {
		least := slices.Min(leads) + earliness
		step := 30 * minute
		z := c.zone.main + (least-((least%step)+step)%step)/step*step
		c.outer = &z
		return
	}
	for i, m := range c.base { // inner stamps with their own zone
		if m.has(innerKnown|innerZone) && m.has(outerKnown) && !m.has(outerZone) {
			lead := c.local[i] - c.reading(m, c.local[i]) + earliness
			z := lead - ((lead%(15*minute))+15*minute)%(15*minute)
			if c.outer == nil || z < *c.outer {
				c.outer = &z
			}
		}
	}
	if c.outer == nil && c.zone.known {
		c.outer = &c.zone.main
	}
	if c.outer != nil && c.assumed {
		c.assumed = false
		c.zoneHow = zoneText(*c.outer) + ", by the program's own stamps"
	}
}

// reading returns the inner stamp with a year, near the reading of the record's neighbours.
func (c *calendar) reading(m timestamp, near int64) int64 {
	if m.has(innerYear) {
		return m.inner
	}
	return nearYear(m.inner, near)
}

// near returns the reading of the sight at or before a record.
func (c *calendar) near(m timestamp) (int64, bool) {
	if len(c.base) == 0 {
		return 0, false
	}
	i := sort.Search(len(c.base), func(i int) bool { return c.base[i].seq > m.seq })
	return c.local[max(0, i-1)], true
}

// instant resolves a record's stamps. klog's own stamp goes before the outer one: lines can be flushed minutes late.
func (c *calendar) instant(m timestamp) (int64, bool) {
	if m.has(resolved) {
		return m.inner, true
	}
	near, ok := c.near(m)
	out, outOK := int64(0), false
	if m.has(outerKnown) {
		if out = m.outer; !m.has(outerYear) {
			out = nearYear(out, near)
		}
		near, ok, outOK = out, true, true
	}
	if m.has(innerKnown) && (ok || m.has(innerYear)) {
		in := c.reading(m, near)
		if !outOK || abs(in-out) <= sane {
			return c.innerInstant(m, in, out), true
		}
	}
	switch {
	case outOK && m.has(outerZone):
		return out, true
	case outOK && c.outer != nil:
		return out - *c.outer, true
	case outOK:
		return inLocation(out, c.loc), true
	}
	if off, ok := c.boots[m.boot]; ok && m.mono != 0 {
		return off + m.mono, true
	}
	return 0, false
}

// innerInstant takes the zone off an inner reading.
func (c *calendar) innerInstant(m timestamp, in, out int64) int64 {
	switch {
	case m.has(innerZone):
		return in
	case c.zone.known && m.has(outerKnown|outerZone) && !c.zone.fixed:
		return in - c.zone.of(in-out)
	case c.zone.known:
		return in - c.zone.main
	}
	return inLocation(in, c.loc)
}

// inLocation reads a clock that shows the time of a location.
func inLocation(us int64, loc *time.Location) int64 {
	t := time.UnixMicro(us).UTC()
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), loc).UnixMicro()
}

// describe returns how zone and year are known, for the report, and what was assumed, for a note.
func (c *calendar) describe() (zone, year, note string) {
	if len(c.base) == 0 {
		return "", "", ""
	}
	zone, year = c.zoneHow, c.year
	if c.assumed {
		name := time.UnixMicro(c.local[0]).In(c.loc).Format("-07:00")
		zone = name + ", assumed: the stamps say none"
		note = fmt.Sprintf("no zone is written; taken as %s (%s)", c.loc, name)
	}
	return zone, year, note
}
