package journalcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// parseWhen reads a moment as a person types it:
//
//	2026-11-21T03:12:09Z, 2026-11-21 03:12:09, 2026-11-21 03:12, 2026-11-21   with or without a zone
//	03:12:09, 03:12                                                          the last time that it was that late
//	-15m, "15m ago", -1d, 2h30m ago                                          before now
//	now, today, yesterday                                                    the last two from midnight on
//
// What has no zone is in that of now.
func parseWhen(text string, now time.Time) (time.Time, error) {
	s := strings.TrimSpace(text)
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch strings.ToLower(s) {
	case "now":
		return now, nil
	case "today":
		return midnight, nil
	case "yesterday":
		return midnight.AddDate(0, 0, -1), nil
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02 15:04:05.999999999 MST",
		"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02",
	} {
		at, err := time.ParseInLocation(layout, s, now.Location())
		if err == nil && (!strings.HasSuffix(layout, "MST") || strings.HasSuffix(s, "UTC")) {
			return at, nil
		}
	}
	for _, layout := range []string{"15:04:05.999999999", "15:04"} {
		if at, err := time.Parse(layout, s); err == nil {
			return lastClock(at, now), nil
		}
	}
	if before, ok := parseAgo(s); ok {
		return now.Add(-before), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time", text)
}

// lastClock returns when it was last that time of the day: at 00:10, 23:50 is ten past midnight's yesterday.
func lastClock(clock, now time.Time) time.Time {
	at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), now.Location())
	if at.After(now) {
		return time.Date(now.Year(), now.Month(), now.Day()-1, clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), now.Location())
	}
	return at
}

// maxAgo bounds how far back a moment may lie: no log is older.
const maxAgo = 100 * 365 * 24 * time.Hour

// parseAgo reads -15m and "15m ago"; d and w, for days and weeks, stand alone or before the rest.
func parseAgo(s string) (time.Duration, bool) {
	rest, minus := strings.CutPrefix(s, "-")
	if !minus {
		var ago bool
		if rest, ago = strings.CutSuffix(s, "ago"); !ago {
			return 0, false
		}
	}
	rest = strings.ReplaceAll(strings.TrimSpace(rest), " ", "")
	var sum time.Duration
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, ok := parseCount(number)
		if !ok {
			return 0, false
		}
		sum += time.Duration(n) * unit.length
		rest = after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 {
			return 0, false
		}
		sum += d
	} else if sum == 0 {
		return 0, false
	}
	return sum, sum <= maxAgo
}

// parseCount reads a number of at most five digits, which is more days than a log has.
func parseCount(s string) (int, bool) {
	if s == "" || len(s) > 5 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n := 0
	for _, digit := range s {
		n = n*10 + int(digit-'0')
	}
	return n, true
}

// parseZone reads the name of a zone, or how far it is from UTC.
func parseZone(s string) (*time.Location, error) {
	for _, layout := range []string{"Z07:00", "-0700", "-07"} {
		if at, err := time.Parse(layout, s); err == nil {
			_, offset := at.Zone()
			if offset == 0 {
				return time.UTC, nil
			}
			return time.FixedZone(at.Format("-07:00"), offset), nil
		}
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
		const layout = "2006-01-02 15:04:05 -07:00"
		return from, to, &cli.UsageError{
			Problem: fmt.Sprintf("--since %s is not before --until %s", from.Format(layout), to.Format(layout)),
			Hint:    "a time of day means the last time that it was that late; give the day too",
		}
	}
	return from, to, nil
}
