package signature

import (
	"math"
	"strings"
	"time"
)

const (
	seen      = "last seen active "
	threshold = "threshold is "
)

// readAge reads the age and threshold of PLEG, and the other reasons, from a skip line or a node condition.
func readAge(s string, m *Match) {
	list, skipping := after(s, "kipping pod synchronization")
	m.Condition = !skipping && isCondition(s)
	if !skipping {
		list = s
	}
	m.Reasons = reasons(reasonList(list, skipping))
	rest, ok := after(list, seen)
	if !ok {
		m.Never = strings.Contains(s, "pleg has yet to be successful")
		rest = list
	} else if age, ok := duration(rest); ok {
		m.Never = age >= math.MaxInt64/time.Hour*time.Hour
		if m.HasAge = !m.Never; m.HasAge {
			m.Age = age
		}
	}
	if rest, ok = after(rest, threshold); ok {
		m.Threshold, _ = duration(rest)
	}
}

// isCondition reports whether a record is a condition of the node: of its status setters, of an event, or a row of
// kubectl describe.
func isCondition(s string) bool {
	return containsAny(s, []string{"ode became not ready", "KubeletNotReady", "Type:Ready"})
}

// duration reads the duration that s begins with, as Go prints it: 27h14m51.413818128s, 3m0s, 850ms, 12µs. It may be
// wrapped: a newline and spaces are passed over. A duration whose last unit has been cut off is not read, unless the
// cut is in the fraction of its seconds, which costs little.
func duration(s string) (time.Duration, bool) {
	total, any := time.Duration(0), false
	i := skipWrap(s, 0)
	for i < len(s) && isDigit(s[i]) {
		whole := int64(0)
		for ; i < len(s) && isDigit(s[i]); i = skipWrap(s, i+1) {
			if whole > math.MaxInt64/10-1 {
				return 0, false
			}
			whole = whole*10 + int64(s[i]-'0')
		}
		frac, scale, dot := int64(0), int64(1), i < len(s) && s[i] == '.'
		if dot {
			for i = skipWrap(s, i+1); i < len(s) && isDigit(s[i]); i = skipWrap(s, i+1) {
				if scale < 1e9 {
					frac, scale = frac*10+int64(s[i]-'0'), scale*10
				}
			}
		}
		unit, n := durationUnit(s[i:])
		if n == 0 {
			if !dot || scale == 1 {
				return 0, false
			}
			unit = time.Second
		}
		if whole > (math.MaxInt64-int64(total))/int64(unit) {
			return math.MaxInt64, true
		}
		total += time.Duration(whole)*unit + time.Duration(float64(frac)/float64(scale)*float64(unit))
		if total < 0 {
			return math.MaxInt64, true
		}
		any = true
		if unit <= time.Second {
			return total, true // seconds and less are the last unit
		}
		i = skipWrap(s, i+n)
	}
	return 0, any && total == math.MaxInt64
}

// skipWrap passes over the break of a wrapped line: a newline and the blanks around it. A blank without a newline
// ends a duration.
func skipWrap(s string, i int) int {
	if i < len(s) && s[i] > ' ' {
		return i
	}
	j := i
	for j < len(s) && (s[j] == ' ' || s[j] == '\t' || s[j] == '\r' || s[j] == '\n') {
		j++
	}
	if strings.IndexByte(s[i:j], '\n') >= 0 {
		return j
	}
	return i
}

// durationUnit reads the unit that s begins with, and its length in bytes.
func durationUnit(s string) (time.Duration, int) {
	if s == "" {
		return 0, 0
	}
	switch s[0] {
	case 'h':
		return time.Hour, 1
	case 's':
		return time.Second, 1
	case 'm':
		if strings.HasPrefix(s, "ms") {
			return time.Millisecond, 2
		}
		return time.Minute, 1
	}
	if strings.HasPrefix(s, "ns") {
		return time.Nanosecond, 2
	}
	// The micro sign, the Greek letter mu, and the micro sign in UTF-8 that was read as Latin-1.
	for _, micro := range [...]string{"us", "\u00b5s", "\u03bcs", "\u00c2\u00b5s"} {
		if strings.HasPrefix(s, micro) {
			return time.Microsecond, len(micro)
		}
	}
	return 0, 0
}
