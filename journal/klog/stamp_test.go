package klog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClock(t *testing.T) {
	tests := map[string]struct {
		micros int64
		rest   string
		ok     bool
	}{
		"00:00:00":            {0, "", true},
		"23:59:60":            {86400e6, "", true}, // a leap second
		"01:02:03.5 x":        {3723_500_000, " x", true},
		"01:02:03,000001":     {3723_000_001, "", true},
		"01:02:03.1234567890": {3723_123_456, "", true},
		"01:02:03. x":         {3723_000_000, ". x", true},
		"24:00:00":            {},
		"00:60:00":            {},
		"00:00:61":            {},
		"1:02:03":             {},
		"01-02-03":            {},
		"01:02":               {},
	}
	for in, want := range tests {
		micros, rest, ok := Clock([]byte(in))
		if micros != want.micros || string(rest) != want.rest || ok != want.ok {
			t.Errorf("Clock(%q) = %d, %q, %v", in, micros, rest, ok)
		}
	}
}

func TestParseISO(t *testing.T) {
	day := Date(2026, 11, 21) + 8*3600e6 + 30*60e6 + 15e6
	tests := map[string]struct {
		want Stamp
		rest string
		ok   bool
	}{
		"2026-11-21T08:30:15":                 {Stamp{Micros: day, Known: true, Year: true}, "", true},
		"2026-11-21 08:30:15,25 x":            {Stamp{Micros: day + 250_000, Known: true, Year: true}, " x", true},
		"2026/11/21 08:30:15":                 {Stamp{Micros: day, Known: true, Year: true}, "", true},
		"2026-11-21T08:30:15.000001Z":         {Stamp{Micros: day + 1, Known: true, Year: true, Zone: true}, "", true},
		"2026-11-21T08:30:15.123456789+05:30": {Stamp{Micros: day + 123456, Known: true, Year: true, Zone: true, Offset: 19800}, "", true},
		"2026-11-21T08:30:15-0800 h":          {Stamp{Micros: day, Known: true, Year: true, Zone: true, Offset: -28800}, " h", true},
		"2026-11-21T08:30:15+08":              {Stamp{Micros: day, Known: true, Year: true, Zone: true, Offset: 28800}, "", true},
		"2026-11-21T08:30:15-host":            {Stamp{Micros: day, Known: true, Year: true}, "-host", true},
		"2026-13-21T08:30:15":                 {},
		"2026-11-31T08:30:15":                 {},
		"2026-11/21 08:30:15":                 {},
		"2026-11-21T08:30:15+16:00":           {Stamp{Micros: day, Known: true, Year: true}, "+16:00", true},
		"2026-11-21T08:30:15-05:60":           {Stamp{Micros: day, Known: true, Year: true}, "-05:60", true},
		"2026-11-21_08:30:15":                 {},
		"2026-11-21T08:30":                    {},
	}
	for in, want := range tests {
		s, rest, ok := ParseISO([]byte(in))
		if diff := cmp.Diff(want.want, s); diff != "" || string(rest) != want.rest || ok != want.ok {
			t.Errorf("ParseISO(%q) leaves %q, %v\n%s", in, rest, ok, diff)
		}
	}
}
