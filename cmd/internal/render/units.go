package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// duration returns seconds for a person: 340 us, 1.2 ms, 12 ms, 3.4 s, 4m02s, 3h05m, 41d03h.
func duration(seconds float64) string {
	if seconds < 0 || math.IsNaN(seconds) {
		return "-"
	}
	switch ms := seconds * 1e3; {
	case seconds == 0:
		return "0" + glue + "ms"
	case ms < 0.9995:
		return unit(ms*1e3, "us")
	case ms < 999.5:
		return unit(ms, "ms")
	case seconds < 59.95:
		return fmt.Sprintf("%.1f", seconds) + glue + "s"
	}
	const minute, hour, day = 60, 3600, 86400
	switch s := math.Round(seconds); {
	case s < hour:
		return fmt.Sprintf("%dm%02ds", int(s)/minute, int(s)%minute)
	case s < day:
		return fmt.Sprintf("%dh%02dm", int(s)/hour, int(s)%hour/minute)
	case s < 1000*day:
		return fmt.Sprintf("%dd%02dh", int(s)/day, int(s)%day/hour)
	}
	return "years"
}

// unit prints v with one decimal below ten and none above.
func unit(v float64, name string) string {
	if v < 9.95 {
		return fmt.Sprintf("%.1f", v) + glue + name
	}
	return fmt.Sprintf("%.0f", v) + glue + name
}

// size returns bytes for a person, in powers of 1024: 52 B, 41.0 KiB, 6.7 MiB.
func size(bytes float64) string {
	if bytes < 1023.5 {
		return fmt.Sprintf("%.0f", bytes) + glue + "B"
	}
	names := []string{"KiB", "MiB", "GiB"}
	v := bytes / 1024
	for len(names) > 1 && v >= 1023.95 {
		v, names = v/1024, names[1:]
	}
	return fmt.Sprintf("%.1f", v) + glue + names[0]
}

// count returns n with thousands separators: 20,000.
func count(n int) string {
	s := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	first := (len(s)-1)%3 + 1
	parts := []string{s[:first]}
	for i := first; i < len(s); i += 3 {
		parts = append(parts, s[i:i+3])
	}
	return sign + strings.Join(parts, ",")
}

// percent returns a share as a whole percentage; what is there but rounds to nothing is <1%, and from ten times on it
// is a multiple.
func percent(share float64) string {
	switch {
	case share > 0 && share < 0.005:
		return "<1%"
	case share < 9.995:
		return fmt.Sprintf("%.0f%%", share*100)
	}
	return times(share)
}

// times returns a ratio: 1.4x, 28x, 12,300x.
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

// clock returns a moment for a person, in UTC: nodes of one cluster are compared by it.
func clock(t time.Time) string {
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// optional prints a value that may be absent; absent is a dash, never zero.
func optional(v *float64, print func(float64) string) string {
	if v == nil {
		return "-"
	}
	return print(*v)
}

// plural returns "1 cause" or "2 causes".
func plural(n int, noun string) string {
	if n == 1 {
		return "1" + glue + noun
	}
	return count(n) + glue + noun + "s"
}
