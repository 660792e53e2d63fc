package cli

import (
	"testing"
	"time"
)

// threeAtNight is a time at which kdiag is run, eight hours east of UTC.
func threeAtNight() time.Time {
	return time.Date(2026, 11, 21, 3, 12, 9, 0, time.FixedZone("", 8*3600))
}

func TestParseWhen(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-20T19:12:09Z":          "2026-11-20T19:12:09Z",
		"2026-11-20T19:12:09.250+01:00": "2026-11-20T19:12:09.25+01:00",
		"2026-11-20 19:12:09":           "2026-11-20T19:12:09+08:00",
		"2026-11-20 19:12":              "2026-11-20T19:12:00+08:00",
		"2026-11-20":                    "2026-11-20T00:00:00+08:00",
		"03:12":                         "2026-11-21T03:12:00+08:00",
		"03:13":                         "2026-11-20T03:13:00+08:00", // it has not been that late today
		"23:50":                         "2026-11-20T23:50:00+08:00",
		"-15m":                          "2026-11-21T02:57:09+08:00",
		"90s":                           "2026-11-21T03:10:39+08:00",
	} {
		got, err := parseWhen(text, threeAtNight())
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s := got.Format(time.RFC3339Nano); s != want {
			t.Errorf("%q is %s, want %s", text, s, want)
		}
	}
	for _, text := range []string{
		"", "soon", "today", "-", "-1d", "03:12:09", "--5m", "-5", "-5x", "25:00", "2026-13-01", "-99999999h",
		"2026-11-20 19:12:09 CET",
	} {
		if got, err := parseWhen(text, threeAtNight()); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

// FuzzParseWhen checks that no text is taken for a time far off, and that what is printed is read again.
func FuzzParseWhen(f *testing.F) {
	for _, s := range []string{"-15m", "03:12", "2026-11-21 03:12:09", "2026-11-21T03:12:09Z", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := parseWhen(s, threeAtNight())
		if err != nil {
			return
		}
		if at.Year() < 0 || at.Year() > 9999 {
			t.Errorf("%q is %v", s, at)
		}
		again, err := parseWhen(at.Format(time.RFC3339Nano), threeAtNight())
		if err != nil || !again.Equal(at) {
			t.Errorf("%q is %v, and then %v, %v", s, at, again, err)
		}
	})
}
