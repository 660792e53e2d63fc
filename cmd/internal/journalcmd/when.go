package journalcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// maxAgo bounds how far back a moment may lie: no log is older.
const maxAgo = 100 * 365 * 24 * time.Hour

// parseWhen reads a moment as a person types it:
//
//	2026-11-21T03:12:09Z, "2026-11-21 03:12:09", "2026-11-21 03:12", 2026-11-21
//	03:12                     the last time that it was that late
//	-15m, "15m ago"           before now
//	today, yesterday          from midnight on
//
// What has no zone is in that of now.
func parseWhen(text string, now time.Time) (time.Time, error) {
	s := strings.TrimSpace(text)
	switch strings.ToLower(s) {
	case "today":
		return midnight(now, 0), nil
	case "yesterday":
		return midnight(now, -1), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return at, nil
		}
	}
	if clock, err := time.Parse("15:04", s); err == nil {
		at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
		if at.After(now) { // it has not been that late today
			at = time.Date(now.Year(), now.Month(), now.Day()-1, clock.Hour(), clock.Minute(), 0, 0, now.Location())
		}
		return at, nil
	}
	before, minus := strings.CutPrefix(s, "-")
	before, ago := strings.CutSuffix(before, "ago")
	d, err := time.ParseDuration(strings.ReplaceAll(before, " ", ""))
	if err != nil || minus == ago || d < 0 || d > maxAgo {
		return time.Time{}, fmt.Errorf("%q is no time", text)
	}
	return now.Add(-d), nil
}

// midnight is the beginning of a day, counted from that of now.
func midnight(now time.Time, days int) time.Time {
	return time.Date(now.Year(), now.Month(), now.Day()+days, 0, 0, 0, 0, now.Location())
}

// parseZone reads the name of a zone, or how far it is from UTC.
func parseZone(s string) (*time.Location, error) {
	if at, err := time.Parse("Z07:00", s); err == nil {
		if _, offset := at.Zone(); offset != 0 {
			return time.FixedZone(s, offset), nil
		}
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(s)
	if err != nil || s == "" {
		return nil, fmt.Errorf("%q is no zone", s)
	}
	return zone, nil
}

// parseRange reads --since and --until.
func parseRange(since, until string, now time.Time) (from, to time.Time, err error) {
	for _, f := range []struct {
		flag, text string
		at         *time.Time
	}{{"--since", since, &from}, {"--until", until, &to}} {
		if f.text == "" {
			continue
		}
		if *f.at, err = parseWhen(f.text, now); err != nil {
			return from, to, &cli.UsageError{
				Problem: f.flag + ": " + err.Error(),
				Hint:    `for example -15m, "2h ago", 03:12, yesterday, "2026-11-21 03:12:09", 2026-11-21T03:12:09Z`,
			}
		}
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return from, to, &cli.UsageError{
			Problem: fmt.Sprintf("--since %s is not before --until %s", from.Format(zoned), to.Format(zoned)),
			Hint:    "a time of day means the last time that it was that late; give the day too",
		}
	}
	return from, to, nil
}

// zoned is how a moment is shown with its zone.
const zoned = time.DateTime + " -07:00"
