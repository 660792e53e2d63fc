package klog

import "time"

// A Stamp is a time as a log has it, which may lack the year or the zone. The zero Stamp is no time.
type Stamp struct {
	// Micros is the reading of the clock in microseconds since 1970, as if the clock showed UTC. Without a year it is
	// counted in BaseYear.
	Micros    int64
	Known     bool  // there is a stamp
	Year      bool  // the year was written
	Zone      bool  // the offset from UTC was written, or the stamp counts from an instant
	Offset    int32 // seconds east of UTC, if Zone
	Monotonic bool  // Micros counts from the start of the machine: there is no date
}

// BaseYear is the year in which stamps without a year are counted. It has a February 29.
const BaseYear = 1972

// Date returns the microseconds from 1970 to the beginning of a day, as if the clock showed UTC. ok is false if there
// is no such day.
func Date(year, month, day int) (micros int64, ok bool) {
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	return t.UnixMicro(), int(t.Month()) == month && t.Day() == day
}

// Clock parses a time of day, hh:mm:ss with any number of decimals after a dot or comma, and returns its microseconds.
func Clock(b []byte) (micros int64, rest []byte, ok bool) {
	if len(b) < 8 || b[2] != ':' || b[5] != ':' {
		return 0, nil, false
	}
	h, m, s := two(b), two(b[3:]), two(b[6:])
	if h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60 {
		return 0, nil, false
	}
	micros, rest = int64(h*3600+m*60+s)*1e6, b[8:]
	if len(rest) < 2 || (rest[0] != '.' && rest[0] != ',') || !digit(rest[1]) {
		return micros, rest, true
	}
	unit := int64(100_000)
	for rest = rest[1:]; len(rest) > 0 && digit(rest[0]); rest = rest[1:] {
		micros += int64(rest[0]-'0') * unit
		unit /= 10
	}
	return micros, rest, true
}

// two returns the number of two decimal digits, -1 if there are not two.
func two(b []byte) int {
	if len(b) < 2 || !digit(b[0]) || !digit(b[1]) {
		return -1
	}
	return int(b[0]-'0')*10 + int(b[1]-'0')
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// ParseISO parses a date and time of ISO 8601 or RFC 3339: 2006-01-02T15:04:05, with a T or a blank between, with any
// number of decimals, and with or without a zone such as Z, +08:00, +0800 or +08. The date may have slashes instead.
func ParseISO(b []byte) (s Stamp, rest []byte, ok bool) {
	if len(b) < 19 || (b[4] != '-' && b[4] != '/') || b[7] != b[4] || (b[10] != 'T' && b[10] != ' ') {
		return Stamp{}, nil, false
	}
	c, y := two(b), two(b[2:])
	day, isDay := Date(c*100+y, two(b[5:]), two(b[8:]))
	clock, rest, isTime := Clock(b[11:])
	if c < 0 || y < 0 || !isDay || !isTime {
		return Stamp{}, nil, false
	}
	s = Stamp{Micros: day + clock, Known: true, Year: true}
	s.Offset, rest, s.Zone = ParseOffset(rest)
	return s, rest, true
}

// ParseOffset parses Z, +hh:mm, +hhmm or +hh and returns the seconds east of UTC.
func ParseOffset(b []byte) (seconds int32, rest []byte, ok bool) {
	if len(b) > 0 && b[0] == 'Z' {
		return 0, b[1:], true
	}
	if len(b) < 3 || (b[0] != '+' && b[0] != '-') {
		return 0, b, false
	}
	h, m := two(b[1:]), 0
	rest = b[3:]
	if len(rest) >= 3 && rest[0] == ':' && two(rest[1:]) >= 0 {
		m, rest = two(rest[1:]), rest[3:]
	} else if two(rest) >= 0 {
		m, rest = two(rest), rest[2:]
	}
	if h < 0 || h > 15 || m > 59 {
		return 0, b, false
	}
	seconds = int32(h*3600 + m*60)
	if b[0] == '-' {
		seconds = -seconds
	}
	return seconds, rest, true
}
