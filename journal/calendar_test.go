package journal

import (
	"testing"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
)

// stamp is a klog.Stamp out of RFC 3339 text; parts says what of it the log wrote: y a year, z a zone.
func stamp(t *testing.T, text, parts string) klog.Stamp {
	t.Helper()
	if text == "" {
		return klog.Stamp{}
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	_, off := at.Zone()
	s := klog.Stamp{Known: true, Micros: at.UnixMicro() + int64(off)*1e6}
	for _, p := range parts {
		switch p {
		case 'y':
			s.Year = true
		case 'z':
			s.Zone, s.Offset = true, int32(off)
		}
	}
	if !s.Year {
		s.Micros = withYear(s.Micros, 1972)
	}
	return s
}

// pair is a record's stamps: inner as klog's, outer with the parts given.
type pair struct{ inner, outer, parts, want string }

func TestCalendar(t *testing.T) {
	shanghai := time.FixedZone("CST", 8*3600)
	tests := []struct {
		name  string
		pairs []pair
		texts []dated
		hint  calendarHint
		zone  string
		year  string
	}{
		{
			name: "the outer stamp gives the zone, and late lines do not bend it",
			pairs: []pair{
				{"2026-11-21T08:00:00.5Z", "2026-11-21T00:00:00.6Z", "yz", "2026-11-21T00:00:00.5Z"},
				{"2026-11-21T08:00:05.5Z", "2026-11-21T00:06:10Z", "yz", "2026-11-21T00:00:05.5Z"},
				{"2026-11-21T08:00:10.5Z", "2026-11-21T00:22:10Z", "yz", "2026-11-21T00:00:10.5Z"},
			},
			zone: "+08:00, by the outer stamps", year: "written",
		},
		{
			name: "all lines are 22 minutes late: no zone lies 15 minutes beside UTC",
			pairs: []pair{
				{"2026-11-21T08:00:05Z", "2026-11-21T08:22:10Z", "yz", "2026-11-21T08:00:05Z"},
				{"2026-11-21T08:00:10Z", "2026-11-21T08:22:10Z", "yz", "2026-11-21T08:00:10Z"},
			},
			zone: "+00:00, by the outer stamps", year: "written",
		},
		{
			name: "summer time ends within the log",
			pairs: []pair{
				{"2026-10-25T02:59:50Z", "2026-10-25T00:59:50.1Z", "yz", "2026-10-25T00:59:50Z"},
				{"2026-10-25T02:59:55Z", "2026-10-25T00:59:55.1Z", "yz", "2026-10-25T00:59:55Z"},
				{"2026-10-25T02:00:00Z", "2026-10-25T01:00:00.1Z", "yz", "2026-10-25T01:00:00Z"},
				{"2026-10-25T02:00:05Z", "2026-10-25T01:00:05.1Z", "yz", "2026-10-25T01:00:05Z"},
			},
			zone: "+01:00, by the outer stamps, and it changes within the log", year: "written",
		},
		{
			name: "no year: December goes over into January, the last one does not lie in the future",
			pairs: []pair{
				{"2025-12-31T23:59:58Z", "", "", "2025-12-31T23:59:58Z"},
				{"2026-01-01T00:00:03Z", "", "", "2026-01-01T00:00:03Z"},
			},
			hint: calendarHint{notAfter: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), notHow: "as the last"},
			zone: "+00:00, assumed: the stamps say none", year: "as the last",
		},
		{
			name: "two lines changed places at New Year",
			pairs: []pair{
				{"2025-12-31T23:59:58Z", "", "", "2025-12-31T23:59:58Z"},
				{"2026-01-01T00:00:00Z", "", "", "2026-01-01T00:00:00Z"},
				{"2025-12-31T23:59:59Z", "", "", "2025-12-31T23:59:59Z"},
				{"2026-01-01T00:00:01Z", "", "", "2026-01-01T00:00:01Z"},
			},
			hint: calendarHint{notAfter: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), notHow: "as the last"},
			zone: "+00:00, assumed: the stamps say none", year: "as the last",
		},
		{
			name:  "the day would be in the future this year",
			pairs: []pair{{"2025-12-03T10:00:00Z", "", "", "2025-12-03T10:00:00Z"}},
			hint:  calendarHint{notAfter: now(), notHow: "as the last"},
			zone:  "+00:00, assumed: the stamps say none", year: "as the last",
		},
		{
			name: "newest first over New Year",
			pairs: []pair{
				{"2026-01-01T00:00:03Z", "", "", "2026-01-01T00:00:03Z"},
				{"2025-12-31T23:59:58Z", "", "", "2025-12-31T23:59:58Z"},
			},
			hint: calendarHint{notAfter: now(), notHow: "as the last", descending: true},
			zone: "+00:00, assumed: the stamps say none", year: "as the last",
		},
		{
			name:  "the text of a condition gives year and zone, the outer stamp is of another zone",
			pairs: []pair{{"2020-08-03T22:33:00.895Z", "2020-08-03T17:33:01Z", "", "2020-08-03T22:33:00.895Z"}},
			texts: []dated{{seq: 1, inner: withYear(time.Date(2020, 8, 3, 22, 33, 0, 895e6, time.UTC).UnixMicro(),
				1972), instant: time.Date(2020, 8, 3, 22, 33, 0, 895e6, time.UTC).UnixMicro()}},
			zone: "+00:00, by the text of node conditions", year: "by the text of a node condition",
		},
		{
			name:  "an inner stamp of another month is a misprint",
			pairs: []pair{{"2026-10-24T09:35:03Z", "2026-12-24T09:35:03Z", "yz", "2026-12-24T09:35:03Z"}},
			zone:  "+00:00, assumed: the stamps say none", year: "written",
		},
		{
			name:  "nothing says a zone: the one given is taken",
			pairs: []pair{{"2026-07-03T19:59:01Z", "2026-07-03T19:59:01Z", "", "2026-07-03T11:59:01Z"}},
			hint:  calendarHint{loc: shanghai, lastYear: 2026},
			zone:  "+08:00, assumed: the stamps say none", year: "as given",
		},
		{
			name: "a leap day has no year either",
			pairs: []pair{
				{"2024-02-29T12:00:00Z", "", "", "2024-02-29T12:00:00Z"},
			},
			hint: calendarHint{year: 2024, yearHow: "by a header in the log", notAfter: now()},
			zone: "+00:00, assumed: the stamps say none", year: "by a header in the log",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stamps []timestamp
			for i, p := range tt.pairs {
				m := newTimestamp(&record{inner: stamp(t, p.inner, ""), outer: stamp(t, p.outer, p.parts)})
				m.seq = uint32(i + 1)
				stamps = append(stamps, m)
			}
			if tt.hint.loc == nil {
				tt.hint.loc = time.UTC
			}
			c := newCalendar(stamps, tt.texts, tt.hint)
			for i, p := range tt.pairs {
				us, ok := c.instant(stamps[i])
				if got := time.UnixMicro(us).UTC().Format(time.RFC3339Nano); !ok || got != p.want {
					t.Errorf("record %d: %s (known: %v), want %s", i, got, ok, p.want)
				}
			}
			zone, year, _ := c.describe()
			if zone != tt.zone || year != tt.year {
				t.Errorf("zone %q year %q, want %q and %q", zone, year, tt.zone, tt.year)
			}
		})
	}
}

func TestMonotonicOnly(t *testing.T) {
	known := newTimestamp(&record{inner: stamp(t, "2026-11-21T08:00:00Z", ""), mono: 5e6})
	bare := timestamp{mono: 65e6, seq: 2}
	c := newCalendar([]timestamp{known, bare}, nil, calendarHint{loc: time.UTC, lastYear: 2026})
	if us, ok := c.instant(bare); !ok || us != time.Date(2026, 11, 21, 8, 1, 0, 0, time.UTC).UnixMicro() {
		t.Errorf("a kernel record 60 s later is at %v (known: %v)", time.UnixMicro(us).UTC(), ok)
	}
	c = newCalendar([]timestamp{bare}, nil, calendarHint{loc: time.UTC})
	if us, ok := c.instant(bare); ok {
		t.Errorf("seconds since boot alone became %v", time.UnixMicro(us))
	}
}

func TestOffsetAbove(t *testing.T) {
	for _, tt := range []struct{ diff, zone, late time.Duration }{
		{0, 0, 0},
		{time.Second, 0, -time.Second}, // the outer stamp was cut to whole seconds
		{-22 * time.Minute, 0, 22 * time.Minute},
		{5*time.Hour + 44*time.Minute, 5*time.Hour + 45*time.Minute, time.Minute},
		{-5*time.Hour - time.Minute, -5 * time.Hour, time.Minute},
	} {
		zone, late, ok := offsetAbove(tt.diff.Microseconds())
		if !ok || zone != tt.zone.Microseconds() || late != tt.late.Microseconds() {
			t.Errorf("offsetAbove(%v) = %v, late %v, %v", tt.diff, zone, late, ok)
		}
	}
	if _, _, ok := offsetAbove(20 * hour); ok {
		t.Error("20 h is no zone")
	}
}

func TestConditionTime(t *testing.T) {
	for _, tt := range []struct{ msg, want string }{
		{"Node became not ready: {Type:Ready LastHeartbeatTime:2022-10-14 17:14:48.847163955 -0700 PDT m=+25681.98 Last", "2022-10-15T00:14:48.847163Z"},
		{
			"{LastHeartbeatTime:2017-09-02 22:02:03.183998186 +0800 CST LastTransitionTime:",
			"2017-09-02T14:02:03.183998Z",
		},
		{`condition={"type":"Ready","lastHeartbeatTime":"2026-11-21T00:52:12Z","last`, "2026-11-21T00:52:12Z"},
		{`"condition={\"lastHeartbeatTime\":\"2026-11-21T00:52:12Z\",`, "2026-11-21T00:52:12Z"},
		{"LastHeartbeatTime:2017-09", ""},
		{"lastHeartbeatTime", ""},
		{"no time", ""},
	} {
		us, ok := conditionTime([]byte(tt.msg))
		got := ""
		if ok {
			got = time.UnixMicro(us).UTC().Format(time.RFC3339Nano)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.msg, got, tt.want)
		}
	}
}
