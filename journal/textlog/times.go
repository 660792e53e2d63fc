package textlog

import (
	"bytes"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// firstCount is the first µs since 1970 that a bare number may mean, in September 2001: less is no time of a log.
const firstCount = 1_000_000_000_000_000

// writtenTime parses a time that stands alone, in a member of JSON or a column: ISO 8601, a count since 1970, or a date as
// web pages print it.
func writtenTime(text string) (klog.Stamp, bool) {
	b := []byte(strings.TrimSpace(text))
	if s, rest, ok := klog.ParseISO(b); ok {
		if word, more := cut(trimBlanks(rest)); string(word) == "UTC" && len(more) == 0 {
			s.Zone = true
		}
		return s, true
	}
	if len(b) >= 10 && len(b) <= 20 && digit(b[0]) && len(bytes.Trim(b, "0123456789.")) == 0 {
		s, ok := klog.ParseEpoch(string(b))
		return s, ok && s.Micros >= firstCount
	}
	return pageDate(b)
}

// pageDate parses "Apr 12, 2024 @ 03:11:52.220" of Kibana and "4/12/2024, 3:11:52.220 AM" of Azure's portal, where the
// month comes first unless it cannot.
func pageDate(b []byte) (s klog.Stamp, ok bool) {
	if len(b) < 16 || len(b) > 40 {
		return s, false
	}
	var m, day, year int
	var rest []byte
	if digit(b[0]) {
		var ok1, ok2, ok3 bool
		m, rest, ok1 = number(b)
		day, rest, ok2 = number(bytes.TrimPrefix(rest, []byte("/")))
		year, rest, ok3 = number(bytes.TrimPrefix(rest, []byte("/")))
		if !ok1 || !ok2 || !ok3 || bytes.Count(b, []byte("/")) != 2 {
			return s, false
		}
		if m > 12 {
			m, day = day, m
		}
	} else {
		var ok1, ok2 bool
		m = englishMonth(b[:3])
		day, rest, ok1 = number(trimBlanks(b[3:]))
		year, rest, ok2 = number(bytes.TrimLeft(rest, ", "))
		if !ok1 || !ok2 {
			return s, false
		}
	}
	clock, ok := pageClock(bytes.TrimLeft(rest, ", @"))
	if !ok || m < 1 || m > 12 || day < 1 || day > 31 || year < 1970 || year > 9999 {
		return s, false
	}
	return klog.Stamp{Micros: klog.Date(year, m, day) + clock, Known: true, Year: true}, true
}

// pageClock parses "03:11:52.220" or "3:11:52.220 AM", to the end.
func pageClock(b []byte) (micros int64, ok bool) {
	if len(b) > 1 && b[1] == ':' {
		b = append([]byte("0"), b...)
	}
	micros, rest, ok := klog.Clock(b)
	const half = 12 * 3600 * 1e6
	switch strings.ToUpper(string(bytes.TrimSpace(rest))) {
	case "":
		return micros, ok
	case "AM":
		return micros % half, ok && micros < 2*half
	case "PM":
		return micros%half + half, ok
	}
	return 0, false
}
