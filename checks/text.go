package checks

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/kdiag/kdiag/crictl"
)

// maxText is the most runes of one text from a runtime that a report repeats.
const maxText = 300

// clean makes a text that came from a runtime safe to print: control characters and whatever else does not print
// become escapes such as \u001b, and of long texts the middle is left out.
func clean(s string) string {
	var b strings.Builder
	for _, r := range crictl.Shorten(s, maxText) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		if r > 0xffff {
			fmt.Fprintf(&b, `\U%08x`, r)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

// duration writes a duration as a person says it: 0.4 ms, 35 ms, 5.0 s, 3m20s.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(math.Round(float64(d)/1e5)/10, 'f', -1, 64) + " ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return minutes(d)
}

// minutes writes a long duration in the form of the kubelet's documentation, without trailing zeros: 2m, 3m20s, 5h3m.
func minutes(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// seconds is duration for a number of seconds, as summaries hold them.
func seconds(s float64) string { return duration(toDuration(s)) }

// toDuration converts seconds; what is absurd becomes a year.
func toDuration(s float64) time.Duration {
	const year = 365 * 24 * time.Hour
	if math.IsNaN(s) || s < 0 {
		return 0
	}
	if s > year.Seconds() {
		return year
	}
	return time.Duration(s * float64(time.Second))
}

// count writes a number with its noun: 1 container, 20,000 containers.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// number writes a number with thousands separated.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// size writes a number of bytes: 812 B, 5.3 MiB.
func size(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// percent writes a share of one: 83 %, and 0.4 % where rounding would hide it.
func percent(x float64) string {
	if x > 0 && x < 0.01 {
		return fmt.Sprintf("%.1f %%", x*100)
	}
	return fmt.Sprintf("%.0f %%", x*100)
}

// joined writes a list as a person says it: a, b and c.
func joined(s []string) string {
	switch len(s) {
	case 0:
		return ""
	case 1:
		return s[0]
	}
	return strings.Join(s[:len(s)-1], ", ") + " and " + s[len(s)-1]
}

// verb picks the verb that agrees with n.
func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
