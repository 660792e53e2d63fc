package render

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// A calendar prints the moments of one report: in the zone of its log, so that they can be looked up there, and with
// no more of the date than tells them apart.
type calendar struct {
	zone  *time.Location
	days  bool   // the report spans more than one day
	years bool   // and more than one year
	day   string // the date that a heading has said; empty for none
}

func calendarOf(r *journal.Report) calendar {
	c := calendar{zone: time.UTC}
	if r.Zone != nil {
		c.zone = r.Zone
	}
	if all := moments(r); len(all) > 0 {
		first, last := slices.MinFunc(all, time.Time.Compare), slices.MaxFunc(all, time.Time.Compare)
		c.days = c.date(first) != c.date(last)
		c.years = first.In(c.zone).Year() != last.In(c.zone).Year()
	}
	return c
}

// moments returns the times that a report's pictures and lines show.
func moments(r *journal.Report) []time.Time {
	var all []time.Time
	add := func(times ...*time.Time) {
		for _, t := range times {
			if t != nil {
				all = append(all, *t)
			}
		}
	}
	add(r.From, r.To)
	for _, e := range r.Episodes {
		add(e.Start, e.End, e.Anchor, e.RecoveredAt)
	}
	for _, s := range r.Signatures {
		add(s.First, s.Last)
	}
	return all
}

// zoneName returns such as UTC or +08:00 for the zone at a moment.
func (c calendar) zoneName(at time.Time) string {
	at = at.In(c.zone)
	if _, offset := at.Zone(); offset == 0 {
		return "UTC"
	}
	return at.Format("-07:00")
}

func (c calendar) date(t time.Time) string { return t.In(c.zone).Format(time.DateOnly) }

func (c calendar) clock(t time.Time) string { return t.In(c.zone).Format(time.TimeOnly) }

// stamp returns a moment, or a dash for none.
func (c calendar) stamp(t *time.Time) string {
	switch {
	case t == nil:
		return "-"
	case c.day != "" && c.date(*t) == c.day:
		return c.clock(*t)
	case c.years:
		return c.date(*t) + glue + c.clock(*t)
	case c.days:
		return t.In(c.zone).Format("Jan"+glue+"02") + glue + c.clock(*t)
	}
	return c.clock(*t)
}

// span returns "00:52:12 to 00:56:07"; a moment when both are the same second.
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

// full returns a moment with its date and zone, for a sentence that stands alone.
func (c calendar) full(t time.Time) string {
	return c.date(t) + glue + c.clock(t) + glue + c.zoneName(t)
}

// after returns a moment after another in as few words as tell when it was.
func (c calendar) after(from, to *time.Time) string {
	if c.date(*from) == c.date(*to) {
		return c.clock(*to)
	}
	return c.full(*to)
}

// short returns a moment with its day and zone in few columns.
func (c calendar) short(t time.Time) string {
	return t.In(c.zone).Format("Jan" + glue + "02" + glue + "15:04:05Z07:00")
}

// within returns a calendar for the lines about one episode, whose heading has said the day.
func (c calendar) within(e journal.Episode) calendar {
	if from, to, ok := e.Span(); ok && c.date(from) == c.date(to) {
		c.day = c.date(from)
	}
	return c
}

// heading says which time a picture shows, and in which zone.
func (c calendar) heading(from, to time.Time) string {
	start := c.date(from) + glue + c.clock(from)
	end := c.clock(to)
	if c.date(from) != c.date(to) {
		end = c.date(to) + glue + end
	}
	zone := c.zoneName(from)
	if other := c.zoneName(to); other != zone {
		zone += "/" + other
	}
	return start + " to " + end + ", " + zone
}

// A tick is a mark of a time axis.
type tick struct {
	at    time.Time
	label string
}

// tickSteps are the distances of ticks that a person can count with.
func tickSteps() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 364 * day, 3640 * day,
	}
}

// ticks returns the marks of an axis that is width characters long.
func (c calendar) ticks(from, to time.Time, width int) []tick {
	const between, most = 4, 400 // characters between labels at least; ticks
	length := to.Sub(from)
	if length <= 0 {
		return nil
	}
	steps := tickSteps()
	step := steps[len(steps)-1]
	for _, s := range steps {
		if float64(width)*float64(s) >= float64(len(labelLayout(s))+between)*float64(length) {
			step = s
			break
		}
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
