// Package units formats numbers, durations, sizes and shares for people. Every sentence, table and page of kdiag uses
// it, so that one value is written in one way. It imports nothing of kdiag.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// year is the longest time that a number of seconds is taken for.
const year = 365 * 24 * time.Hour

// Duration formats a duration with the precision that a person needs: 368us, 35ms, 1.2s, 2m4s, 5h3m, 3d4h. A negative
// duration is 0s.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Microsecond:
		return "1us"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Round(time.Microsecond).Microseconds(), 10) + "us"
	case d < 9950*time.Microsecond:
		return decimal(float64(d)/float64(time.Millisecond)) + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + "ms"
	case d < time.Minute-50*time.Millisecond:
		return decimal(d.Seconds()) + "s"
	}
	const day = 24 * time.Hour
	switch s := d.Round(time.Second); {
	case s < time.Hour:
		return pair(s, time.Minute, "m", time.Second, "s")
	case s < day:
		return pair(s, time.Hour, "h", time.Minute, "m")
	default:
		return pair(s, day, "d", time.Hour, "h")
	}
}

// pair formats a duration in two units, and leaves the smaller one out when it is zero.
func pair(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	s := strconv.FormatInt(int64(d/large), 10) + largeName
	if rest := d % large / small; rest > 0 {
		s += strconv.FormatInt(int64(rest), 10) + smallName
	}
	return s
}

// Seconds formats a number of seconds as Duration does.
func Seconds(s float64) string { return Duration(ToDuration(s)) }

// ToDuration converts seconds. Negative values and NaN become 0; more than a year becomes a year.
func ToDuration(s float64) time.Duration {
	switch {
	case math.IsNaN(s) || s < 0:
		return 0
	case s > year.Seconds():
		return year
	}
	return time.Duration(s * float64(time.Second))
}

// Number formats an integer with its thousands separated: 1,234.
func Number[T ~int | ~int64 | ~uint32 | ~uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count formats a number with its noun: 1 container, 20,000 containers, 3 sandboxes.
func Count[T ~int | ~int64 | ~uint32 | ~uint64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "x") || strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return Number(n) + " " + noun + "s"
}

// Times formats how often something happened: once, twice, 3 times.
func Times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return Number(n) + " times"
}

// Size formats a number of bytes: 812 B, 40 KiB, 5.3 MiB, 3.6 TiB.
func Size[T ~int | ~int64 | ~uint32 | ~uint64](n T) string {
	x := float64(n)
	if x < 1<<10 {
		return fmt.Sprint(n) + " B"
	}
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		if x /= 1 << 10; x < 1<<10 {
			return decimal(x) + " " + unit
		}
	}
	return decimal(x/(1<<10)) + " TiB"
}

// Percent formats a share of one: 69%, and 0.4% where rounding would hide it.
func Percent(share float64) string {
	if share > 0 && share < 0.01 {
		return decimal(share*100) + "%"
	}
	return fmt.Sprintf("%.0f%%", share*100)
}

// List joins words as a person does: a, b and c.
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Plural picks the word that agrees with n.
func Plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// decimal formats with one decimal, and without it when that is zero.
func decimal(x float64) string {
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}
