package klog

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Field is one member of a JSON object.
type Field struct {
	Key   string
	Value string // strings without quotes and escapes, anything else as written
	Kind  byte   // '"' string, '{' object, '[' array, '0' number, true, false or null
}

// maxFields bounds the members of one object.
const maxFields = 4096

// ParseObject parses the members of the JSON object at the beginning of b, in order. An object that is cut gives the
// members that are there, the last one cut. Parsing stops at the first invalid byte. ok is false if there is no member
// at all. encoding/json takes twice the time, and stops at the first fault.
func ParseObject(b []byte) (fields []Field, ok bool) {
	b, more := bytes.CutPrefix(trimSpace(b), []byte("{"))
	for more && len(fields) < maxFields {
		key := trimSpace(b)
		if len(key) == 0 || key[0] != '"' {
			break
		}
		n := valueLength(key)
		b, more = bytes.CutPrefix(trimSpace(key[n:]), []byte(":"))
		if b = trimSpace(b); !more || len(b) == 0 {
			break
		}
		f := Field{Key: unquote(key[:n]), Kind: b[0]}
		n = valueLength(b)
		switch f.Value = string(b[:n]); f.Kind {
		case '"':
			f.Value = unquote(b[:n])
		case '{', '[':
		default:
			f.Kind = '0'
		}
		fields = append(fields, f)
		b, more = bytes.CutPrefix(trimSpace(b[n:]), []byte(","))
	}
	return fields, len(fields) > 0
}

func trimSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// valueLength returns the length of the value that b begins with: to the quote, brace or bracket that closes it. A
// value that is not closed goes to the end.
func valueLength(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(b))
			}
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth == 0 { // of the value's container
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && strings.IndexByte(", \t\r\n", c) >= 0:
			return i
		}
	}
	return len(b)
}

// unquote returns a string without its quotes, of which the last may be missing, and escapes. They stay where one is
// cut or unknown to JSON.
func unquote(b []byte) (s string) {
	body := bytes.TrimSuffix(b[1:], []byte(`"`))
	if bytes.IndexByte(body, '\\') < 0 || json.Unmarshal(slices.Concat([]byte(`"`), body, []byte(`"`)), &s) != nil {
		return string(body)
	}
	return s
}

// JSONStamp returns the time of a line of klog's JSON format:
// {"ts":1757010283211.4668,"caller":"kubelet/kubelet.go:2460","msg":"...",...}. Other loggers of the same library
// write the time as text. ok is false for JSON that has no msg, or neither a time nor a caller.
func JSONStamp(fields []Field) (s Stamp, ok bool) {
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
