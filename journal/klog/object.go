package klog

import "strings"

// A Field is one member of a JSON object.
type Field struct {
	Key   string
	Value string // strings without quotes and escapes, anything else as written
	Kind  byte   // '"' string, '{' object, '[' array, '0' number, true, false or null
}

// maxFields bounds the members of one object.
const maxFields = 4096

// ParseObject parses the members of the JSON object at the beginning of b, in order, and returns how many bytes it
// takes. An object that is cut gives the members that are there, the last one cut; what is no JSON any more ends it.
// ok is false if there is no member at all.
func ParseObject(b []byte) (fields []Field, n int, ok bool) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return nil, 0, false
	}
	for i++; len(fields) < maxFields; {
		if i = skipSpace(b, i); i >= len(b) || b[i] != '"' {
			break
		}
		key, rest, _ := Unquote(b[i:])
		i = skipSpace(b, len(b)-len(rest))
		if i >= len(b) || b[i] != ':' {
			return fields, i, len(fields) > 0
		}
		if i = skipSpace(b, i+1); i >= len(b) {
			break
		}
		f := Field{Key: key}
		f.Value, f.Kind, i = parseValue(b, i)
		fields = append(fields, f)
		if i = skipSpace(b, i); i >= len(b) || b[i] != ',' {
			break
		}
		i++
	}
	if i < len(b) && b[i] == '}' {
		i++
	}
	return fields, i, len(fields) > 0
}

// parseValue parses the value at b[i:], which is not empty, and returns where it ends.
func parseValue(b []byte, i int) (value string, kind byte, end int) {
	switch b[i] {
	case '"':
		s, rest, _ := Unquote(b[i:])
		return s, '"', len(b) - len(rest)
	case '{', '[':
		n := balanced(b[i:])
		return string(b[i : i+n]), b[i], i + n
	}
	end = i
	for end < len(b) && strings.IndexByte(",}] \t\r\n", b[end]) < 0 {
		end++
	}
	return string(b[i:end]), '0', end
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// balanced returns the length of a value that begins with a brace or bracket, or a word before one: to the brace that
// closes it, quoted strings skipped. A value that is not closed goes to the end.
func balanced(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n, _ := quotedLength(b[i:])
			i += n - 1
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			if depth--; depth <= 0 {
				return i + 1
			}
		case ' ':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}
