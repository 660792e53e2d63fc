package journal

import (
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/textlog"
)

// stamp reads a stamp of ISO 8601, which may lack its year or its zone, or a duration since the machine started; of no
// text none.
func stamp(t *testing.T, text string) klog.Stamp {
	t.Helper()
	if up, err := time.ParseDuration(text); err == nil {
		return klog.Stamp{Micros: up.Microseconds(), Known: true, Monotonic: true}
	}
	full, year := text, true
	if len(text) > 2 && text[2] == '-' {
		full, year = "1972-"+text, false
	}
	s, _, ok := klog.ParseISO([]byte(full))
	if s.Year = year && ok; ok != (text != "") {
		t.Fatalf("%q is no stamp", text)
	}
	return s
}

func TestCalendar(t *testing.T) {
	last := calendarHint{loc: time.UTC, notAfter: now(), how: "as the last"}
	for _, tt := range []struct {
		name       string
		pairs      [][3]string // inner stamp, outer stamp, the instant
		hint       calendarHint
		zone, year string
	}{
		{
			"the outer stamp gives the zone, and late lines do not bend it",
			[][3]string{
				{"11-21T08:00:00.5", "2026-11-21T00:00:00.6Z", "2026-11-21T00:00:00.5Z"},
				{"11-21T08:00:05.5", "2026-11-21T00:06:10Z", "2026-11-21T00:00:05.5Z"},
				{"11-21T08:00:10.5", "2026-11-21T00:22:10Z", "2026-11-21T00:00:10.5Z"},
			},
			last, "+08:00, by the stamps that name one", "by other stamps in the log",
		},
		{
			"summer time ends within the log",
			[][3]string{
				{"10-25T02:59:50", "2026-10-25T00:59:50.1Z", "2026-10-25T00:59:50Z"},
				{"10-25T02:00:00", "2026-10-25T01:00:00.1Z", "2026-10-25T01:00:00Z"},
			},
			last, "+02:00, by the stamps that name one", "by other stamps in the log",
		},
		{
			"the last stamp does not lie in the future; December goes over into January, and lines changed places",
			[][3]string{
				{"12-31T23:59:58", "", "2025-12-31T23:59:58Z"},
				{"01-01T00:00:00", "", "2026-01-01T00:00:00Z"},
				{"12-31T23:59:59", "", "2025-12-31T23:59:59Z"},
			},
			last, "+00:00, assumed: the stamps name none", "as the last",
		},
		{
			"an inner stamp of another month is a misprint",
			[][3]string{{"10-24T09:35:03", "2026-12-24T09:35:03Z", "2026-12-24T09:35:03Z"}},
			last, "", "by other stamps in the log",
		},
		{
			"a kernel record 60 s later",
			[][3]string{
				{"11-21T08:00:00", "5s", "2026-11-21T08:00:00Z"},
				{"", "65s", "2026-11-21T08:01:00Z"},
			},
			last, "+00:00, assumed: the stamps name none", "as the last",
		},
		{
			"a leap day, by a header",
			[][3]string{{"02-29T12:00:00", "", "2024-02-29T12:00:00Z"}},
			calendarHint{loc: time.UTC, headerYear: 2024, notAfter: now()},
			"+00:00, assumed: the stamps name none", "by a header in the log",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stamps []timestamp
			for i, p := range tt.pairs {
				r := textlog.Record{Inner: stamp(t, p[0]), Outer: stamp(t, p[1])}
				stamps = append(stamps, newTimestamp(&r, uint32(i+1)))
			}
			c := newCalendar(stamps, tt.hint)
			for i, p := range tt.pairs {
				us, ok := c.instant(stamps[i])
				if got := time.UnixMicro(us).UTC().Format(time.RFC3339Nano); !ok || got != p[2] {
					t.Errorf("record %d: %s (known: %v), want %s", i, got, ok, p[2])
				}
			}
			zone, year := c.describe()
			testkit.Equal(t, "zone and year", []string{tt.zone, tt.year}, []string{zone, year})
		})
	}
}
