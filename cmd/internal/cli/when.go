package cli

import (
	"fmt"
	"strings"
	"time"
)

// maxAgo bounds how far back a time may lie: no log is older.
const maxAgo = 100 * 365 * 24 * time.Hour

// Zoned is how a time is shown with its zone.
const Zoned = time.DateTime + " -07:00"

// parseWhen reads a time:
//
//	2026-11-21T03:12:09Z, "2026-11-21 03:12:09", "2026-11-21 03:12", 2026-11-21
//	03:12       the last time that it was that late
//	-15m, 15m   before now
//
// A time without a zone is in the zone of now.
func parseWhen(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	if clock, err := time.Parse("15:04", text); err == nil {
		at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
		if at.After(now) { // it has not been that late today
			at = at.AddDate(0, 0, -1)
		}
		return at, nil
	}
	d, err := time.ParseDuration(strings.TrimPrefix(text, "-"))
	if err != nil || d < 0 || d > maxAgo {
		return time.Time{}, fmt.Errorf("%q is not a time", text)
	}
	return now.Add(-d), nil
}

// ParseRange reads --since and --until at a time, in its zone; what is empty is a zero time: no limit. The error is of
// usage.
func ParseRange(since, until string, now time.Time) (from, to time.Time, err error) {
	for _, f := range []struct {
		flag, text string
		at         *time.Time
	}{{"--since", since, &from}, {"--until", until, &to}} {
		if f.text == "" {
			continue
		}
		if *f.at, err = parseWhen(f.text, now); err != nil {
			return from, to, Usage(f.flag+": "+err.Error(),
				`for example -15m, 03:12, "2026-11-21 03:12:09", 2026-11-21T03:12:09Z`)
		}
	}
	if to.IsZero() || from.Before(to) {
		return from, to, nil
	}
	return from, to, Usage(
		fmt.Sprintf("--since %s is not before --until %s", from.Format(Zoned), to.Format(Zoned)),
		"a time of day means the last time that it was that late")
}
