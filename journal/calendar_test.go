package journal

import (
	"cmp"
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

func TestCalendar(t *testing.T) {
	shanghai := time.FixedZone("CST", 8*3600)
	last := calendarHint{notAfter: now(), how: "as the last"}
	tests := []struct {
		name  string
		pairs [][4]string // inner stamp as klog's, outer, what the outer one names (year, zone), the instant
		hint  calendarHint
		zone  string
		year  string
	}{
		{
			"the outer stamp gives the zone, and late lines do not bend it",
			[][4]string{
				{"2026-11-21T08:00:00.5Z", "2026-11-21T00:00:00.6Z", "yz", "2026-11-21T00:00:00.5Z"},
				{"2026-11-21T08:00:05.5Z", "2026-11-21T00:06:10Z", "yz", "2026-11-21T00:00:05.5Z"},
				{"2026-11-21T08:00:10.5Z", "2026-11-21T00:22:10Z", "yz", "2026-11-21T00:00:10.5Z"},
			},
			last, "+08:00, by the stamps that name one", "by other stamps in the log",
		},
		{
			"all lines are 22 minutes late: no zone lies 15 minutes beside UTC",
			[][4]string{
				{"2026-11-21T08:00:05Z", "2026-11-21T08:22:10Z", "yz", "2026-11-21T08:00:05Z"},
				{"2026-11-21T08:00:10Z", "2026-11-21T08:22:10Z", "yz", "2026-11-21T08:00:10Z"},
			},
			last, "+00:00, by the stamps that name one", "by other stamps in the log",
		},
		{
			"summer time ends within the log",
			[][4]string{
				{"2026-10-25T02:59:50Z", "2026-10-25T00:59:50.1Z", "yz", "2026-10-25T00:59:50Z"},
				{"2026-10-25T02:00:00Z", "2026-10-25T01:00:00.1Z", "yz", "2026-10-25T01:00:00Z"},
			},
			last, "+02:00, by the stamps that name one", "by other stamps in the log",
		},
		{
			"the last stamp does not lie in the future; December goes over into January, and lines changed places",
			[][4]string{
				{"2025-12-31T23:59:58Z", "", "", "2025-12-31T23:59:58Z"},
				{"2026-01-01T00:00:00Z", "", "", "2026-01-01T00:00:00Z"},
				{"2025-12-31T23:59:59Z", "", "", "2025-12-31T23:59:59Z"},
			},
			last, "+00:00, assumed: the stamps name none", "as the last",
		},
		{
			"an inner stamp of another month is a misprint",
			[][4]string{{"2026-10-24T09:35:03Z", "2026-12-24T09:35:03Z", "yz", "2026-12-24T09:35:03Z"}},
			last, "", "by other stamps in the log",
		},
		{
			"no stamp names a zone: the one given is taken",
			[][4]string{{"2026-07-03T19:59:01Z", "2026-07-03T19:59:01Z", "", "2026-07-03T11:59:01Z"}},
			calendarHint{loc: shanghai, notAfter: now(), how: "as given"},
			"+08:00, assumed: the stamps name none", "as given",
		},
		{
			"a leap day, by a header",
			[][4]string{{"2024-02-29T12:00:00Z", "", "", "2024-02-29T12:00:00Z"}},
			calendarHint{headerYear: 2024, notAfter: now()},
			"+00:00, assumed: the stamps name none", "by a header in the log",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stamps []timestamp
			for i, p := range tt.pairs {
				r := record{inner: stamp(t, p[0], ""), outer: stamp(t, p[1], p[2])}
				stamps = append(stamps, newTimestamp(&r, uint32(i+1)))
			}
			tt.hint.loc = cmp.Or(tt.hint.loc, time.UTC)
			c := newCalendar(stamps, tt.hint)
			for i, p := range tt.pairs {
				us, ok := c.instant(stamps[i])
				if got := time.UnixMicro(us).UTC().Format(time.RFC3339Nano); !ok || got != p[3] {
					t.Errorf("record %d: %s (known: %v), want %s", i, got, ok, p[3])
				}
			}
			zone, year := c.describe()
			if zone != tt.zone || year != tt.year {
				t.Errorf("zone %q year %q, want %q and %q", zone, year, tt.zone, tt.year)
			}
		})
	}
}

func TestMonotonicOnly(t *testing.T) {
	known := newTimestamp(&record{
		inner: stamp(t, "2026-11-21T08:00:00Z", ""), outer: klog.Stamp{Micros: 5e6, Known: true, Monotonic: true},
	}, 1)
	bare := newTimestamp(&record{mono: 65e6}, 2)
	hint := calendarHint{loc: time.UTC, notAfter: now()}
	us, ok := newCalendar([]timestamp{known, bare}, hint).instant(bare)
	if !ok || us != time.Date(2026, 11, 21, 8, 1, 0, 0, time.UTC).UnixMicro() {
		t.Errorf("a kernel record 60 s later is at %v (known: %v)", time.UnixMicro(us).UTC(), ok)
	}
	if us, ok := newCalendar([]timestamp{bare}, hint).instant(bare); ok {
		t.Errorf("seconds since boot alone became %v", time.UnixMicro(us))
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
		s, ok := conditionTime([]byte(tt.msg))
		got := ""
		if ok {
			got = time.UnixMicro(s.Micros).UTC().Format(time.RFC3339Nano)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.msg, got, tt.want)
		}
	}
}
