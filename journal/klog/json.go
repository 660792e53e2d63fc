package klog

import (
	"math"
	"strconv"
	"strings"
)

// ParseJSON returns the time of a line of klog's JSON format:
// {"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"...",...}. Other loggers of the same library
// write the time as text. ok is false for JSON that has no msg, or neither a time nor a caller.
func ParseJSON(b []byte) (s Stamp, ok bool) {
	fields, _, _ := ParseObject(b)
	text, caller := false, false
	for _, f := range fields {
		switch f.Key {
		case "msg":
			text = f.Kind == '"'
		case "ts":
			s = WrittenTime(f.Value)
		case "caller":
			caller = true
		}
	}
	return s, text && (s.Known || caller)
}

// WrittenTime parses a time that stands alone: ISO 8601, or a number that counts from 1970 in seconds, milli-, micro-
// or nanoseconds, which its size tells apart. It returns the zero Stamp if text is neither.
func WrittenTime(text string) Stamp {
	text = strings.TrimSpace(text)
	if s, _, ok := ParseISO([]byte(text)); ok {
		return s
	}
	v, err := strconv.ParseFloat(text, 64)
	// Go's own count of seconds, from the year 1, stands in its dumps of times: beyond 6e10.
	if err != nil || math.IsNaN(v) || v < 1e9 || v >= 1e19 || v > 6e10 && v < 1e11 {
		return Stamp{}
	}
	// Each limit is 1973 in the finer unit.
	switch {
	case v < 1e11:
		v *= 1e6
	case v < 1e14:
		v *= 1e3
	case v >= 1e17:
		v /= 1e3
	}
	return Stamp{Micros: int64(math.Round(v)), Known: true, Year: true, Zone: true}
}
