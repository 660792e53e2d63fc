package cli

import (
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// DidYouMean returns a hint with the value that is most like what was typed, after the words that come before it on the
// command line; empty when none is like it.
func DidYouMean(before, typed string, values []string) string {
	best, least := "", max(2, len(typed)/3)+1
	for _, v := range values {
		d := distance(strings.ToLower(typed), strings.ToLower(v))
		if d >= least && len(typed) > 2 && strings.HasPrefix(v, typed) {
			d = least - 1
		}
		if d < least {
			best, least = v, d
		}
	}
	if best == "" || typed == "" {
		return ""
	}
	return "did you mean " + before + best + "?"
}

// distance counts the letters to insert, delete or replace that turn one word into another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

var (
	amount = regexp.MustCompile(`^([0-9]+) *([a-zA-Z]*)$`)
	unit   = map[string]time.Duration{
		"": time.Second, "sec": time.Second, "second": time.Second, "min": time.Minute, "minute": time.Minute,
		"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour,
	}
)

// ValueHint returns a hint with a value that a flag takes: of a duration what was meant (5s for 5), else its default.
func ValueHint(f *pflag.Flag, typed string) string {
	name := "--" + f.Name + " "
	switch {
	case f.Value.Type() != "duration":
		if f.DefValue == "" || f.DefValue == "[]" {
			return ""
		}
		return "for example " + name + f.DefValue
	case amount.MatchString(typed):
		parts := amount.FindStringSubmatch(typed)
		each, known := unit[strings.TrimSuffix(strings.ToLower(parts[2]), "s")]
		d, err := time.ParseDuration(parts[1] + "s")
		if known && err == nil {
			return "did you mean " + name + (d * (each / time.Second)).String() + "?"
		}
	}
	return "give a duration, such as " + name + "5s or " + name + "2m"
}
