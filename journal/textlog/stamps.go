package textlog

import (
	"bytes"
	"math"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// parseWeekday parses "Mon 2023-07-03 19:59:01.293068 CST", as journalctl -o short-full and its heads write it.
func parseWeekday(b []byte) (s klog.Stamp, zone string, rest []byte, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 20)], ' ')
	if n < 1 || bytes.ContainsAny(b[:n], "0123456789:[]{}\"=") {
		return s, "", nil, false
	}
	s, rest, ok = klog.ParseISO(b[n+1:])
	if !ok || s.Zone || len(rest) == 0 || rest[0] != ' ' {
		return s, "", nil, false
	}
	end := bytes.IndexAny(rest[1:], " ,;")
	if end < 0 {
		end = len(rest) - 1
	}
	zone = strings.TrimSuffix(string(rest[1:1+end]), ".")
	offset, left, known := klog.ParseOffset([]byte(zone))
	switch {
	case zone == "UTC" || zone == "GMT":
		s.Zone = true
	case known && len(left) == 0:
		s.Zone, s.Offset = true, offset
	case zone == "" || len(zone) > 6 || strings.ContainsAny(zone, "[]:=\""):
		return s, "", trimBlanks(rest), true
	}
	return s, zone, trimBlanks(rest[1+end:]), true
}

// parseUnix parses "1688385541.293068 ", as journalctl -o short-unix writes it.
func parseUnix(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	sec, rest, ok := number(b)
	if !ok || len(b)-len(rest) < 9 || len(b)-len(rest) > 10 || len(rest) < 8 || rest[0] != '.' {
		return s, nil, false
	}
	frac, after, ok := number(rest[1:])
	if !ok || len(rest)-1-len(after) != 6 || len(after) == 0 || after[0] != ' ' {
		return s, nil, false
	}
	return klog.Stamp{Micros: int64(sec)*1e6 + int64(frac), Known: true, Year: true, Zone: true}, after[1:], true
}

// parseBracket parses what dmesg and journalctl -o short-monotonic put in brackets: "[  123.456789] ",
// "[    1.001000 <    0.5>] ", "[Mon Nov 21 04:50:00 2026] ", "[Nov21 04:50] ", "[  +0.000123] ".
func parseBracket(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	if len(b) < 4 || b[0] != '[' {
		return s, nil, false
	}
	end := bytes.IndexByte(b[:min(len(b), 48)], ']')
	if end < 0 {
		return s, nil, false
	}
	in, rest := trimBlanks(b[1:end]), b[end+1:]
	if len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	if sec, after, ok := number(in); ok && len(after) > 1 && after[0] == '.' {
		frac, tail, ok := number(after[1:])
		digits := len(after) - 1 - len(tail)
		if !ok || (digits != 3 && digits != 6) || sec > math.MaxInt32 || (len(tail) > 0 && tail[0] != ' ' && tail[0] != '<') {
			return s, nil, false
		}
		if digits == 3 {
			frac *= 1000
		}
		return klog.Stamp{Micros: int64(sec)*1e6 + int64(frac), Known: true, Monotonic: true}, rest, true
	}
	if s, ok := parseDmesgDate(in); ok {
		return s, rest, true
	}
	if len(in) > 2 && in[0] == '+' && digit(in[1]) && bytes.IndexByte(in, '.') > 0 {
		return s, rest, true
	}
	return s, nil, false
}

// parseDmesgDate parses "Mon Nov 21 04:50:00 2026" of dmesg -T and "Nov21 04:50" of dmesg -e.
func parseDmesgDate(in []byte) (s klog.Stamp, ok bool) {
	f := bytes.Fields(in)
	switch {
	case len(f) == 5 && month(f[1]) > 0:
		day, _, ok1 := number(f[2])
		clock, _, ok2 := klog.Clock(f[3])
		year, _, ok3 := number(f[4])
		if ok1 && ok2 && ok3 && day >= 1 && day <= 31 && year >= 1970 && year < 10000 {
			return klog.Stamp{Micros: klog.Date(year, month(f[1]), day) + clock, Known: true, Year: true}, true
		}
	case len(f) == 2 && len(f[0]) == 5 && month(f[0][:3]) > 0:
		day, _, ok1 := number(f[0][3:])
		clock, _, ok2 := klog.Clock(append(bytes.Clone(f[1]), ":00"...))
		if ok1 && ok2 && day >= 1 && day <= 31 {
			return klog.Stamp{Micros: klog.Date(klog.BaseYear, month(f[0][:3]), day) + clock, Known: true}, true
		}
	}
	return s, false
}

// parseDescribed parses "Fri, 28 Jun 2019 10:19:21 +0800", as kubectl describe writes it.
func parseDescribed(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	const shape = "Mon, 02 Jan 2006 15:04:05 -0700"
	if len(b) < len(shape) || b[3] != ',' || b[4] != ' ' {
		return s, nil, false
	}
	day, _, ok1 := number(b[5:7])
	m := englishMonth(b[8:11])
	year, _, ok2 := number(b[12:16])
	clock, rest, ok3 := klog.Clock(b[17:])
	if !ok1 || !ok2 || !ok3 || m == 0 || day < 1 || day > 31 || len(rest) < 6 {
		return s, nil, false
	}
	s = klog.Stamp{Micros: klog.Date(year, m, day) + clock, Known: true, Year: true}
	s.Offset, rest, s.Zone = klog.ParseOffset(trimBlanks(rest))
	return s, rest, s.Zone
}
