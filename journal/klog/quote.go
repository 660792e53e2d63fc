package klog

import (
	"bytes"
	"strconv"
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
	return string(Unescape(make([]byte, 0, len(body)), body)), b[n:], closed
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

// Unescape appends b to dst with one level of the escapes of Go and JSON strings undone.
func Unescape(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return append(dst, b...)
		}
		dst = append(dst, b[:i]...)
		n := 2
		switch c := b[i+1]; c {
		case '"', '\\', '/', '\'':
			dst = append(dst, c)
		case 'x':
			dst, n = appendHex(dst, b[i:], 2)
		case 'u':
			dst, n = appendHex(dst, b[i:], 4)
		case 'U':
			dst, n = appendHex(dst, b[i:], 8)
		default:
			dst = appendControl(dst, c)
		}
		b = b[i+n:]
	}
}

// appendControl appends the control character of an escape of one letter, or the escape if it is none.
func appendControl(dst []byte, c byte) []byte {
	const letters, controls = "abfnrtv", "\a\b\f\n\r\t\v"
	if i := bytes.IndexByte([]byte(letters), c); i >= 0 {
		return append(dst, controls[i])
	}
	return append(dst, '\\', c)
}

// appendHex appends the byte or rune of an escape such as \x1b, \u003c or \U0001f600 at the beginning of b, with its
// second half if it is the first of a surrogate pair, and returns how many bytes of b it took.
func appendHex(dst, b []byte, digits int) (out []byte, n int) {
	v, ok := hex(b, digits)
	if !ok {
		return append(dst, b[:2]...), 2
	}
	if digits == 2 {
		return append(dst, byte(v)), 4
	}
	if v >= 0xd800 && v < 0xdc00 && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if low, ok := hex(b[6:], 4); ok && low >= 0xdc00 && low < 0xe000 {
			return utf8.AppendRune(dst, rune(0x10000+(v-0xd800)<<10+(low-0xdc00))), 12
		}
	}
	return utf8.AppendRune(dst, rune(v)), 2 + digits
}

// hex returns the number of the digits behind the two bytes of an escape.
func hex(b []byte, digits int) (uint64, bool) {
	if len(b) < 2+digits {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[2:2+digits]), 16, 32)
	return v, err == nil
}
