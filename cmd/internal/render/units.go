package render

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/units"
)

// glued replaces the spaces of a figure, so that no line breaks between a number and its unit.
func glued(s string) string { return strings.ReplaceAll(s, " ", glue) }

// duration formats seconds; a dash stands for what is no duration.
func duration(seconds float64) string {
	if seconds < 0 || math.IsNaN(seconds) {
		return "-"
	}
	return units.Seconds(seconds)
}

// size formats bytes.
func size(bytes float64) string { return glued(units.Size(int64(bytes))) }

// count formats a number with thousands separators.
func count(n int) string { return units.Number(n) }

// plural formats a number with its noun.
func plural(n int, noun string) string { return glued(units.Count(n, noun)) }

// percent formats a share.
func percent(share float64) string { return units.Percent(share) }

// times formats a ratio: 1.4x, 28x, 12,300x.
func times(ratio float64) string {
	switch {
	case ratio < 0.0995:
		return fmt.Sprintf("%.2fx", ratio)
	case ratio < 9.95:
		return fmt.Sprintf("%.1fx", ratio)
	case ratio < 1e9:
		return count(int(math.Round(ratio))) + "x"
	}
	return ">1e9x"
}

// clock formats a moment in UTC, so that nodes of one cluster can be compared.
func clock(t time.Time) string {
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// optional formats a value that may be absent; absent is a dash, never zero.
func optional(v *float64, print func(float64) string) string {
	if v == nil {
		return "-"
	}
	return print(*v)
}
