package klog

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote takes the quotes and escapes off a string of Go or JSON at the beginning of b. A string that is cut gives
// what is there, with closed false, and so does text that is no string: nothing. Escapes that neither language knows
// stay as they are.
func Unquote(b []byte) (s string, rest []byte, closed bool) {
	if len(b) == 0 || b[0] != '"' {
		return "", b, false
	}
	n, closed := quotedLength(b)
	body := b[1:n]
	if closed {
		body = b[1 : n-1]
	}
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body), b[n:], closed
	}
	return string(unescape(make([]byte, 0, len(body)), body)), b[n:], closed
}

// quotedLength returns the length of a string that begins with a quote, with both quotes; to the end of b if it is not
// closed.
func quotedLength(b []byte) (n int, closed bool) {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1, true
		}
	}
	return len(b), false
}

// unescape appends b to dst with one level of the escapes of Go and JSON strings undone.
func unescape(dst, b []byte) []byte {
	const letters, controls = "abfnrtv", "\a\b\f\n\r\t\v"
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return append(dst, b...)
		}
		dst = append(dst, b[:i]...)
		c, digits := b[i+1], 0
		b = b[i+2:]
		switch n := strings.IndexByte(letters, c); {
		case c == '"' || c == '\\' || c == '/' || c == '\'':
			dst = append(dst, c)
		case n >= 0:
			dst = append(dst, controls[n])
		case c == 'x':
			digits = 2
		case c == 'u':
			digits = 4
		default:
			dst = append(dst, '\\', c)
		}
		if digits == 0 {
			continue
		}
		v, err := strconv.ParseUint(string(b[:min(digits, len(b))]), 16, 32)
		switch {
		case err != nil || len(b) < digits:
			dst, digits = append(dst, '\\', c), 0
		case digits == 2:
			dst = append(dst, byte(v))
		default:
			r, low := rune(v), uint64(0)
			if pair := b[4:]; utf16.IsSurrogate(r) && len(pair) >= 6 && string(pair[:2]) == `\u` {
				low, _ = strconv.ParseUint(string(pair[2:6]), 16, 32)
			}
			if whole := utf16.DecodeRune(r, rune(low)); whole != utf8.RuneError {
				r, digits = whole, 10
			}
			dst = utf8.AppendRune(dst, r)
		}
		b = b[digits:]
	}
}
