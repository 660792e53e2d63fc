package klog

import (
	"testing"
	"time"
)

// TestParseISO checks what is read of a time, by its zone if it has one, and what is left of the text.
func TestParseISO(t *testing.T) {
	for in, want := range map[string][2]string{
		"2026-11-21T08:30:15":                 {"2026-11-21T08:30:15 no zone"},
		"2026-11-21 08:30:15,25 x":            {"2026-11-21T08:30:15.25 no zone", " x"},
		"2026/11/21 08:30:15":                 {"2026-11-21T08:30:15 no zone"},
		"2026-11-21T08:30:15.000001Z":         {"2026-11-21T08:30:15.000001 Z"},
		"2026-11-21T08:30:15.123456789+05:30": {"2026-11-21T08:30:15.123456 +05:30"},
		"2026-11-21T08:30:15-0800 h":          {"2026-11-21T08:30:15 -08:00", " h"},
		"2026-11-21T08:30:15+08":              {"2026-11-21T08:30:15 +08:00"},
		"2026-11-21T08:30:15-host":            {"2026-11-21T08:30:15 no zone", "-host"},
		"2026-11-21T08:30:15+16:00":           {"2026-11-21T08:30:15 no zone", "+16:00"},
		"2026-11-21T08:30:15-05:60":           {"2026-11-21T08:30:15 no zone", "-05:60"},
		"2026-11-21T23:59:60":                 {"2026-11-22T00:00:00 no zone"}, // a leap second
		"2026-11-21T01:02:03. x":              {"2026-11-21T01:02:03 no zone", ". x"},
		"2026-11-21T24:00:00":                 {"none"},
		"2026-11-21T00:60:00":                 {"none"},
		"2026-11-21T00:00:61":                 {"none"},
		"2026-11-21T01-02-03":                 {"none"},
		"2026-13-21T08:30:15":                 {"none"},
		"2026-11-31T08:30:15":                 {"none"},
		"2026-11-21_08:30:15":                 {"none"},
		"2026-11-21T08:30":                    {"none"},
	} {
		s, rest, ok := ParseISO([]byte(in))
		got := time.UnixMicro(s.Micros).UTC().Format("2006-01-02T15:04:05.999999")
		switch {
		case !ok:
			got = "none"
		case s.Zone:
			got += time.Unix(0, 0).In(time.FixedZone("", int(s.Offset))).Format(" Z07:00")
		default:
			got += " no zone"
		}
		if got != want[0] || string(rest) != want[1] || ok && !s.Year {
			t.Errorf("ParseISO(%q) = %s and %q, want %q", in, got, rest, want)
		}
	}
}
