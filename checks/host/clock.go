package host

import "time"

// A Clock is the state of the wall clock.
type Clock struct {
	Synchronised bool          // the kernel's word (adjtimex): an NTP client keeps it
	Offset       time.Duration // what the client still corrects
	MaxError     time.Duration
	Suspended    time.Duration // since boot: CLOCK_BOOTTIME less CLOCK_MONOTONIC
	// Jumped is by how much the wall clock went further than the monotonic one between the two looks of this run.
	Jumped time.Duration
	Over   time.Duration // between the looks
}
