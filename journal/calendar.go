package journal

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"time"
	"unique"
)

const (
	// sane is how far the two stamps of one record may lie apart, in µs, before the inner one is taken for a misprint.
	sane = 26 * hour
	// latenessPunctual is how far an outer stamp may lie after the inner one, in µs, for the pair to fix the zone by
	// itself.
	latenessPunctual = 3 * second
	latenessMost     = hour       // later than this, a line is rather of another zone
	earliness        = 2 * second // an outer stamp in whole seconds may seem earlier by truncation
	quarter          = 15 * minute
)

// A dated is a record whose text states the instant of its inner stamp, as node conditions do.
type dated struct {
	seq     uint32
	inner   int64 // as in timestamp
	year    bool  // inner has its year
	instant int64
}

// A calendar turns the stamps of one source into instants. It is built from a sample of the source's stamps.
type calendar struct {
	base    []timestamp // those that have a stamp, in the order of the text
	local   []int64     // their readings with year, as if the clock showed UTC; outer stamp, else inner
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
	return t.AddDate(year-t.Year(), 0, 0).UnixMicro()
}

func yearOf(us int64) int { return time.UnixMicro(us).UTC().Year() }

// nearYear gives a reading without year the one that brings it nearest to another.
func nearYear(us, near int64) int64 {
	best := withYear(us, yearOf(near))
	for _, y := range []int{yearOf(near) - 1, yearOf(near) + 1} {
		if t := withYear(us, y); abs(t-near) < abs(best-near) {
			best = t
		}
	}
	return best
}

func abs(x int64) int64 { return max(x, -x) }

// years gives each stamp its reading with a year.
func (c *calendar) years(texts []dated, hint calendarHint) {
	c.local = make([]int64, len(c.base))
	rel := make([]int, len(c.base)) // year counted from the first stamp
	var bare []int                  // stamps without a year
	written := -1                   // one with a year
	for i, m := range c.base {
		us, year := baseStamp(m)
		c.local[i] = us
		if year {
			written = i
			continue
		}
		if n := len(bare); n > 0 {
			rel[i] = rel[bare[n-1]] + rollover(us-c.local[bare[n-1]], hint.descending)
		}
		bare = append(bare, i)
	}
	if c.year = "written"; len(bare) == 0 {
		return
	}
	var first int
	first, c.year = c.firstYear(rel, bare, written, texts, hint)
	for _, i := range bare {
		c.local[i] = withYear(c.local[i], first+rel[i])
	}
}

// rollover returns by how many years a log moved from one reading without year to the next: December to January, or
// back where the log is newest first or two lines changed places around New Year.
func rollover(d int64, descending bool) int {
	const half, swap = 183 * 24 * hour, 363 * 24 * hour
	switch {
	case descending && d > half, !descending && d > swap:
		return -1
	case descending && d < -swap, !descending && d < -half:
		return 1
	}
	return 0
}

// firstYear finds the year of the first stamp, and how it is known.
func (c *calendar) firstYear(rel, bare []int, written int, texts []dated, hint calendarHint) (int, string) {
	by := func(i int, instant int64) int { return yearOf(nearYear(c.local[i], instant)) - rel[i] }
	if len(texts) > 0 {
		return by(c.place(texts[0].seq), texts[0].instant), "by the text of a node condition"
	}
	for i, m := range c.base {
		if m.has(innerKnown|innerYear|outerKnown) && !m.has(outerYear) {
			return by(i, m.inner), "by the program's own stamps"
		}
	}
	switch {
	case written >= 0:
		return by(bare[0], c.local[written]), "by neighbouring records"
	case hint.lastYear != 0:
		return hint.lastYear - slices.Max(rel), "as given"
	case hint.year != 0:
		return hint.year, hint.yearHow
	}
	limit := hint.notAfter.Add(24 * time.Hour).UnixMicro()
	year := hint.notAfter.UTC().Year() + 1
	for slices.ContainsFunc(bare, func(i int) bool { return withYear(c.local[i], year+rel[i]) > limit }) {
		year--
	}
	return year, hint.notHow
}

// place returns the stamp at or before a place in the text.
func (c *calendar) place(seq uint32) int {
	return max(0, sort.Search(len(c.base), func(i int) bool { return c.base[i].seq > seq })-1)
}

// zones learns the zone of inner stamps from the outer ones and from the text of conditions, and that of outer stamps
// from the inner ones.
func (c *calendar) zones(texts []dated, hint calendarHint) {
	var diffs []int64
	bareInner, zoned, bareOuter := false, false, false
	for i, m := range c.base {
		switch {
		case !m.has(innerKnown):
			bareOuter = bareOuter || !m.has(outerZone)
			continue
		case m.has(innerZone):
			zoned = true
			continue
		}
		bareInner = true
		if d := c.reading(m, c.local[i]) - c.local[i]; m.has(outerKnown|outerZone) && abs(d) <= sane {
			diffs = append(diffs, d)
		}
	}
	var told []int64 // by how much the stamps of conditions are ahead of the instant that the condition's text states
	for _, d := range texts {
		us := d.inner
		if !d.year {
			us = nearYear(us, d.instant)
		}
		if d := us - d.instant; abs(d) <= sane {
			told = append(told, time.Duration(d).Round(time.Duration(quarter)).Nanoseconds()) // µs stand for ns here
		}
	}
	how := "by the outer stamps"
	c.zone = newZones(diffs)
	if z := newZones(told); z.known && (!c.zone.known || len(c.zone.strong) == 1 && c.zone.strong[z.main] == 0) {
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
	case hint.zone != nil && bareInner && !zoned:
		c.zone = zones{known: true, main: *hint.zone}
		c.zoneHow = zoneText(*hint.zone) + ", " + hint.zoneHow
	case bareInner && !zoned || bareOuter:
		c.assumed = true
	}
	c.outerZone()
}

// outerZone relates outer stamps without a zone to the inner ones of the same records: what they are ahead is the
// zone plus lateness.
func (c *calendar) outerZone() {
	for i, m := range c.base {
		if !m.has(innerKnown|outerKnown) || m.has(outerZone) || !m.has(innerZone) && !c.zone.known {
			continue
		}
		lead := c.local[i] - c.reading(m, c.local[i]) + earliness
		if !m.has(innerZone) {
			if abs(lead) > sane {
				continue
			}
			lead += c.zone.main
		}
		if z := lead - ((lead%quarter)+quarter)%quarter; c.outer == nil || z < *c.outer {
			c.outer = &z
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

// instant resolves a record's stamps. klog's own stamp goes before the outer one: lines can be flushed minutes late.
func (c *calendar) instant(m timestamp) (int64, bool) {
	if m.has(resolved) {
		return m.inner, true
	}
	near, ok := int64(0), len(c.base) > 0
	if ok {
		near = c.local[c.place(m.seq)]
	}
	outer := m.has(outerKnown)
	if outer {
		if !m.has(outerYear) {
			m.outer = nearYear(m.outer, near)
		}
		near, ok = m.outer, true
	}
	if m.has(innerKnown) && (ok || m.has(innerYear)) {
		if in := c.reading(m, near); !outer || abs(in-m.outer) <= sane {
			return c.innerInstant(m, in), true
		}
	}
	off, booted := c.boots[m.boot]
	switch {
	case outer && m.has(outerZone):
		return m.outer, true
	case outer && c.outer != nil:
		return m.outer - *c.outer, true
	case outer:
		return inLocation(m.outer, c.loc), true
	}
	return off + m.mono, booted && m.mono != 0
}

// innerInstant takes the zone off an inner reading.
func (c *calendar) innerInstant(m timestamp, in int64) int64 {
	switch {
	case m.has(innerZone):
		return in
	case c.zone.known && m.has(outerKnown|outerZone) && !c.zone.fixed:
		return in - c.zone.of(in-m.outer)
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

// offsets are the differences from UTC that clocks have somewhere, in minutes, ascending.
func offsets() []int64 {
	return []int64{
		-720, -660, -600, -570, -540, -480, -420, -360, -300, -240, -210, -180, -120, -60, 0, 60, 120, 180, 210, 240,
		270, 300, 330, 345,
		360, 390, 420, 480, 525, 540, 570, 600, 630, 660, 720, 765, 780, 825, 840,
	}
}

// offsetAbove returns the smallest offset, in µs, that is at least diff, and how much larger it is. An outer stamp is
// never earlier than the inner one, so the difference inner minus outer is at most the zone: what it lacks is
// lateness.
func offsetAbove(diff int64) (zone, late int64, ok bool) {
	for _, m := range offsets() {
		if zone = m * minute; zone >= diff-earliness {
			return zone, zone - diff, diff >= -14*hour
		}
	}
	return 0, 0, false
}

// zones is what pairs of stamps say of the zone that a program wrote its stamps in.
type zones struct {
	known  bool
	main   int64         // µs east of UTC
	strong map[int64]int // zones that punctual pairs vote for, with their votes
	fixed  bool          // the outer stamps contradict, and are not asked
}

// newZones decides over many pairs. diffs are inner stamps read as UTC, minus the instant of the outer stamp, in µs.
func newZones(diffs []int64) zones {
	z := zones{strong: map[int64]int{}}
	best := int64(0)
	for _, d := range diffs {
		off, late, ok := offsetAbove(d)
		if !ok {
			continue
		}
		if late <= latenessPunctual {
			z.strong[off]++
		}
		if !z.known || d > best {
			best = d
		}
		z.known = true
	}
	most := 0
	for off, n := range z.strong {
		if n > most || n == most && off < z.main {
			z.main, most = off, n
		}
	}
	if most == 0 && z.known { // no line came in time: the least late one is nearest to the truth
		z.main, _, _ = offsetAbove(best)
	}
	return z
}

// of returns the zone of one pair. A punctual pair knows its own, so that daylight saving in the middle of a log is
// followed; a late one is read in the zone of the others.
func (z *zones) of(diff int64) int64 {
	own, late, ok := offsetAbove(diff)
	lateInMain := z.main - diff
	switch {
	case !ok:
		return z.main
	case late <= latenessPunctual && (own == z.main || z.strong[own] >= 2):
		return own
	case lateInMain >= -earliness && lateInMain <= latenessMost:
		return z.main
	}
	return own
}

// zoneText writes an offset as +08:00.
func zoneText(us int64) string {
	return time.Unix(0, 0).In(time.FixedZone("", int(us/second))).Format("-07:00")
}

// conditionTime reads when a node condition was written: LastHeartbeatTime, as Go prints a time or as JSON has it. It
// states the year and the zone that klog's header next to it lacks.
//
//	{Type:Ready Status:False LastHeartbeatTime:2017-05-05 13:59:56.872865742 +0000 UTC m=+1.5 LastTransition...
//	{"type":"Ready","status":"False","lastHeartbeatTime":"2026-11-21T00:52:12Z","lastTransitionTime":...
func conditionTime(msg []byte) (us int64, ok bool) {
	if _, rest, found := bytes.Cut(msg, []byte("LastHeartbeatTime:")); found {
		parts := bytes.Fields(rest[:min(len(rest), 64)])
		if len(parts) < 3 {
			return 0, false
		}
		t, err := time.Parse("2006-01-02 15:04:05 -0700", string(bytes.Join(parts[:3], []byte(" "))))
		return t.UnixMicro(), err == nil
	}
	if _, rest, found := bytes.Cut(msg, []byte("lastHeartbeatTime")); found {
		rest = bytes.TrimLeft(rest[:min(len(rest), 64)], `\": `)
		t, err := time.Parse(time.RFC3339, string(rest[:max(0, bytes.IndexAny(rest, `\", }`))]))
		return t.UnixMicro(), err == nil
	}
	return 0, false
}
