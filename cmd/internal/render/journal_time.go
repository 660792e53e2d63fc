package render

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// A calendar prints the times of one report: in the zone of its log, so that they can be looked up there, and with no
// more of the date than tells them apart.
type calendar struct {
	zone  *time.Location
	days  bool // the report spans more than one day
	years bool // and more than one year
}

func calendarOf(r *journal.Report) calendar {
	c := calendar{zone: time.UTC}
	if r.Zone != nil {
		c.zone = r.Zone
	}
	if first, last, ok := bounds(r); ok {
		c = newCalendar(c.zone, first, last)
	}
	return c
}

// newCalendar returns the calendar of the times from first to last.
func newCalendar(zone *time.Location, first, last time.Time) calendar {
	c := calendar{zone: zone}
	c.days = c.date(first) != c.date(last)
	c.years = first.In(zone).Year() != last.In(zone).Year()
	return c
}

// bounds returns the first and the last time that a report's pictures and lines show; false without any.
func bounds(r *journal.Report) (first, last time.Time, ok bool) {
	all := []*time.Time{r.From, r.To}
	for _, e := range r.Episodes {
		all = append(all, e.Start, e.End, e.Anchor, e.RecoveredAt)
	}
	for _, s := range r.Signatures {
		all = append(all, s.First, s.Last)
	}
	all = slices.DeleteFunc(all, func(t *time.Time) bool { return t == nil })
	if len(all) == 0 {
		return first, last, false
	}
	compare := func(a, b *time.Time) int { return a.Compare(*b) }
	return *slices.MinFunc(all, compare), *slices.MaxFunc(all, compare), true
}

func (c calendar) date(t time.Time) string { return t.In(c.zone).Format(time.DateOnly) }

func (c calendar) clock(t time.Time) string { return t.In(c.zone).Format(time.TimeOnly) }

// stamp returns a time, or a dash for none.
func (c calendar) stamp(t *time.Time) string {
	switch {
	case t == nil:
		return "-"
	case c.years:
		return c.date(*t) + glue + c.clock(*t)
	case c.days:
		return t.In(c.zone).Format("Jan"+glue+"02") + glue + c.clock(*t)
	}
	return c.clock(*t)
}

// span returns such as "00:52:12 to 00:56:07"; one time when both are the same second or one is missing.
func (c calendar) span(from, to *time.Time) string {
	switch {
	case from == nil && to == nil:
		return ""
	case from == nil:
		return c.stamp(to)
	case to == nil || c.stamp(from) == c.stamp(to):
		return c.stamp(from)
	case c.date(*from) == c.date(*to):
		return c.stamp(from) + " to " + c.clock(*to)
	}
	return c.stamp(from) + " to " + c.stamp(to)
}

// full returns a span with dates and zone, for a sentence that stands alone.
func (c calendar) full(from, to time.Time) string {
	text := c.date(from) + glue + c.clock(from) + glue + c.zoneName(from)
	switch {
	case c.date(from) != c.date(to):
		return text + " to " + c.date(to) + glue + c.clock(to)
	case c.clock(from) != c.clock(to):
		return text + " to " + c.clock(to)
	}
	return text
}

// zoneName returns such as UTC or +08:00 for the zone at a time.
func (c calendar) zoneName(at time.Time) string {
	at = at.In(c.zone)
	if _, offset := at.Zone(); offset == 0 {
		return "UTC"
	}
	return at.Format("-07:00")
}

// short returns a time with its day and zone in few columns.
func (c calendar) short(t time.Time) string {
	return t.In(c.zone).Format("Jan" + glue + "02" + glue + "15:04:05Z07:00")
}

// A tick is a mark of a time axis.
type tick struct {
	at    time.Time
	label string
}

// ticks returns the marks of an axis that is width characters long.
func (c calendar) ticks(from, to time.Time, width int) []tick {
	const between, most = 4, 400 // characters between labels at least; ticks
	length := to.Sub(from)
	if length <= 0 {
		return nil
	}
	const day = 24 * time.Hour
	steps := []time.Duration{ // which a person can count with
		time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
		10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 7 * day, 28 * day, 364 * day, 3640 * day,
	}
	fits := func(step time.Duration) bool {
		return float64(width)*float64(step) >= float64(len(labelLayout(step))+between)*float64(length)
	}
	step := steps[len(steps)-1]
	if i := slices.IndexFunc(steps, fits); i >= 0 {
		step = steps[i]
	}
	_, offset := from.In(c.zone).Zone()
	local := time.Duration(offset) * time.Second
	var all []tick
	for at := from.Add(local).Truncate(step).Add(-local); !at.After(to) && len(all) < most; at = at.Add(step) {
		layout := labelLayout(step)
		if c.days && step < 24*time.Hour && at.Add(local).Truncate(24*time.Hour).Equal(at.Add(local)) {
			layout = "Jan 02" // midnight is named by the day that it begins
		}
		if !at.Before(from) {
			all = append(all, tick{at, at.In(c.zone).Format(layout)})
		}
	}
	return all
}

func labelLayout(step time.Duration) string {
	switch {
	case step < time.Minute:
		return time.TimeOnly
	case step < 24*time.Hour:
		return "15:04"
	case step < 300*24*time.Hour:
		return "Jan 02"
	}
	return time.DateOnly
}
