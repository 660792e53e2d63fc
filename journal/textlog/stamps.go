package textlog

import (
	"bytes"
	"math"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
)

// parseMonthDay parses "Jul  3 19:59:01.293068", as syslog and journalctl write it. A month in a language that is not
// known makes a stamp that is not Known.
func parseMonthDay(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 25)], ' ')
	if n < 2 {
		return s, nil, false
	}
	day, rest, ok := number(bytes.TrimLeft(b[n:], " "))
	if !ok || day < 1 || day > 31 || len(rest) < 9 || rest[0] != ' ' {
		return s, nil, false
	}
	rest = rest[1:]
	clock, rest, ok := klog.Clock(rest)
	if !ok || (len(rest) > 0 && rest[0] != ' ' && rest[0] != ':') {
		return s, nil, false
	}
	m := month(b[:n])
	if m == 0 && bytes.ContainsAny(b[:n], "0123456789:=[]{}()\"/") {
		return s, nil, false
	}
	micros, isDay := klog.Date(klog.BaseYear, m, day)
	s.Known, s.Micros = isDay, micros+clock
	return s, trimBlanks(bytes.TrimPrefix(rest, []byte(":"))), true
}

// month returns the number of the name of a month in English, or as Chinese, Japanese and Korean count them, as in
// "9月"; 0 if it is none. The message of a program has a stamp that does not depend on the language.
func month(b []byte) int {
	const english = "JanFebMarAprMayJunJulAugSepOctNovDec"
	if i := strings.Index(english, string(b)); len(b) == 3 && i >= 0 && i%3 == 0 {
		return i/3 + 1
	}
	v, sign, ok := number(b)
	if ok && v <= 12 && (string(sign) == "月" || string(sign) == "월") {
		return v
	}
	return 0
}

// parseWeekday parses "Mon 2023-07-03 19:59:01.293068 CST", as journalctl -o short-full and its heads write it. Of
// names of zones only UTC is known.
func parseWeekday(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 20)], ' ')
	if n < 1 || bytes.ContainsAny(b[:n], "0123456789:[]{}\"=") {
		return s, nil, false
	}
	s, rest, ok = klog.ParseISO(b[n+1:])
	if !ok || s.Zone || len(rest) == 0 || rest[0] != ' ' {
		return s, nil, false
	}
	zone, after := cut(rest[1:])
	offset, left, known := klog.ParseOffset(zone)
	switch {
	case string(zone) == "UTC" || string(zone) == "GMT":
		s.Zone = true
	case known && len(left) == 0:
		s.Zone, s.Offset = true, offset
	case len(zone) == 0 || len(zone) > 6 || bytes.ContainsAny(zone, "[]:=\""):
		return s, trimBlanks(rest), true
	}
	return s, after, true
}

// parseUnix parses "1688385541.293068 ", as journalctl -o short-unix writes it.
func parseUnix(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 18)], ' ')
	if n < 16 || b[n-7] != '.' || len(bytes.Trim(b[:n], "0123456789.")) > 0 {
		return s, nil, false
	}
	s = klog.WrittenTime(string(b[:n]))
	return s, b[n+1:], s.Known
}

// parseBracket parses what dmesg and journalctl -o short-monotonic put in brackets: "[  123.456789] ",
// "[Mon Nov 21 04:50:00 2026] ", "[2026-11-21T04:50:00Z]: ".
func parseBracket(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	end := bytes.IndexByte(b[:min(len(b), 48)], ']')
	if end < 0 {
		return s, nil, false
	}
	in, rest := trimBlanks(b[1:end]), bytes.TrimPrefix(b[end+1:], []byte(" "))
	if sec, after, ok := number(in); ok && len(after) == 7 && after[0] == '.' {
		micros, tail, ok := number(after[1:])
		return klog.Stamp{Micros: int64(sec)*1e6 + int64(micros), Known: true, Monotonic: true}, rest,
			ok && len(tail) == 0 && sec <= math.MaxInt32
	}
	if s, after, ok := klog.ParseISO(in); ok && len(after) == 0 {
		return s, trimBlanks(bytes.TrimPrefix(rest, []byte(":"))), true
	}
	when, err := time.Parse(time.ANSIC, string(in))
	return klog.Stamp{Micros: when.UnixMicro(), Known: true, Year: true}, rest, err == nil && when.Year() >= 1970
}

// cut returns the first word of b and the text behind it.
func cut(b []byte) (word, rest []byte) {
	n := bytes.IndexAny(b, " \t")
	if n < 0 {
		return b, nil
	}
	return b[:n], trimBlanks(b[n:])
}

func trimBlanks(b []byte) []byte { return bytes.TrimLeft(b, " \t") }

func digit(c byte) bool { return c >= '0' && c <= '9' }

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// number parses leading decimal digits, at most 18.
func number(b []byte) (n int, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && digit(b[i]); i++ {
		if i == 18 || n > math.MaxInt/10-1 { // the second where an int has 32 bits
			return 0, nil, false
		}
		n = n*10 + int(b[i]-'0')
	}
	return n, b[i:], i > 0
}
