package journalcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// maxAgo bounds how far back a time may lie: no log is older.
const maxAgo = 100 * 365 * 24 * time.Hour

// zoned is how a time is shown with its zone.
const zoned = time.DateTime + " -07:00"

// parseWhen reads a time:
//
//	2026-11-21T03:12:09Z, "2026-11-21 03:12:09", "2026-11-21 03:12", 2026-11-21
//	03:12       the last time that it was that late
//	-15m, 15m   before now
//
// What has no zone is in that of now.
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
		return time.Time{}, fmt.Errorf("%q is no time", text)
	}
	return now.Add(-d), nil
}

// parseZone reads the name of a zone, or how far it is from UTC.
func parseZone(s string) (*time.Location, error) {
	if at, err := time.Parse("Z07:00", s); err == nil {
		_, offset := at.Zone()
		return time.FixedZone(s, offset), nil
	}
	zone, err := time.LoadLocation(s)
	if err != nil {
		return nil, cli.Usage(fmt.Sprintf("--zone: %q is no zone", s),
			"give the distance from UTC, such as --zone +08:00, or a name such as Europe/Berlin")
	}
	return zone, nil
}

// parseRange reads --since and --until; a zero time is no limit.
func parseRange(since, until string, now time.Time) (from, to time.Time, err error) {
	for _, f := range []struct {
		flag, text string
		at         *time.Time
	}{{"--since", since, &from}, {"--until", until, &to}} {
		if f.text == "" {
			continue
		}
		if *f.at, err = parseWhen(f.text, now); err != nil {
			return from, to, cli.Usage(f.flag+": "+err.Error(),
				`for example -15m, 03:12, "2026-11-21 03:12:09", 2026-11-21T03:12:09Z`)
		}
	}
	if to.IsZero() || from.Before(to) {
		return from, to, nil
	}
	return from, to, cli.Usage(
		fmt.Sprintf("--since %s is not before --until %s", from.Format(zoned), to.Format(zoned)),
		"a time of day means the last time that it was that late")
}
