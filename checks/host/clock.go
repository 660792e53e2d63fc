package host

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock is the state of the wall clock.
type Clock struct {
	Synchronised bool          // by adjtimex: an NTP client keeps it
	Offset       time.Duration // what the client still corrects
	MaxError     time.Duration
	Suspended    time.Duration // since boot: CLOCK_BOOTTIME less CLOCK_MONOTONIC
	// Jumped is by how much more the wall clock advanced than the monotonic one between the two reads of this run.
	Jumped time.Duration
	Over   time.Duration // between the reads
}

// clockState is what adjtimex(2) returns of the kernel's clock discipline.
type clockState struct {
	status           int32
	offset, maxError int64
}

// instants are three clocks read as close together as possible, each since its own epoch.
type instants struct {
	wall, monotonic, boot time.Duration
}

// clockOf returns the state that two reads amount to.
func clockOf(s clockState, before, after instants) Clock {
	unit := time.Microsecond
	if s.status&unix.STA_NANO != 0 { // of the offset only; the error is in microseconds always
		unit = time.Nanosecond
	}
	over := after.monotonic - before.monotonic
	return Clock{
		Synchronised: s.status&unix.STA_UNSYNC == 0,
		Offset:       time.Duration(s.offset) * unit,
		MaxError:     time.Duration(s.maxError) * time.Microsecond,
		Suspended:    after.boot - after.monotonic,
		Jumped:       after.wall - before.wall - over,
		Over:         over,
	}
}

// ReadClock reads the clocks twice. They are the machine's, in whatever container kdiag runs. While chrony or ntpd
// slews, the two clocks are slewed alike and Jumped stays next to nothing; a step shows in full.
func ReadClock(ctx context.Context, between time.Duration) (Clock, error) {
	before, err := readInstants()
	if err != nil {
		return Clock{}, err
	}
	if err := pause(ctx, between); err != nil {
		return Clock{}, fmt.Errorf("looking at the clocks a second time: %w", err)
	}
	after, err := readInstants()
	if err != nil {
		return Clock{}, err
	}
	var tx unix.Timex // Modes 0 changes nothing
	if _, err := unix.Adjtimex(&tx); err != nil {
		return Clock{}, fmt.Errorf("asking for the clock's discipline: %w", err)
	}
	return clockOf(clockState{tx.Status, int64(tx.Offset), int64(tx.Maxerror)}, before, after), nil
}

// readInstants reads the monotonic clock before and after the others, and again when something came between, so that a
// busy CPU does not look like a jump.
func readInstants() (instants, error) {
	const near, tries = 100 * time.Microsecond, 10
	var best instants
	closest := maxDuration
	for range tries {
		var now [4]unix.Timespec
		for i, id := range []int32{unix.CLOCK_MONOTONIC, unix.CLOCK_REALTIME, unix.CLOCK_BOOTTIME, unix.CLOCK_MONOTONIC} {
			if err := unix.ClockGettime(id, &now[i]); err != nil {
				return instants{}, fmt.Errorf("reading clock %d: %w", id, err)
			}
		}
		first, last := time.Duration(now[0].Nano()), time.Duration(now[3].Nano())
		if took := last - first; took < closest {
			closest = took
			best = instants{wall: time.Duration(now[1].Nano()), monotonic: first + took/2, boot: time.Duration(now[2].Nano())}
		}
		if closest < near {
			break
		}
	}
	return best, nil
}
