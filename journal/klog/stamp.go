package klog

import "time"

// A Stamp is a time as a log wrote it, with what it left out. The zero Stamp is no time.
type Stamp struct {
	// Micros is the clock's reading in microseconds since 1970 as if the clock showed UTC. Without a year it is taken in
	// year 0 of the count, 1972, which has a February 29.
	Micros    int64
	Known     bool  // there is a stamp
	Year      bool  // the year was written
	Zone      bool  // the offset from UTC was written, or the stamp counts from an instant
	Offset    int32 // seconds east of UTC, if Zone
	Monotonic bool  // Micros counts from the machine's start: no date at all
}

// Instant returns the time if the stamp says it without anything to assume.
func (s Stamp) Instant() (time.Time, bool) {
	if !s.Known || !s.Year || !s.Zone || s.Monotonic {
		return time.Time{}, false
	}
	return time.UnixMicro(s.Micros - int64(s.Offset)*1e6), true
}
