package host

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock is the state of the wall clock.
type Clock struct {
	Synchronised bool // by adjtimex: an NTP client keeps it
	MaxError     time.Duration
	Suspended    time.Duration // since boot: CLOCK_BOOTTIME less CLOCK_MONOTONIC
	// Jumped is by how much more the wall clock advanced than the monotonic one between the two reads of this run.
	Jumped time.Duration
	Over   time.Duration // between the reads
}

// instants are three clocks, each since its own epoch.
type instants struct {
	wall, monotonic, boot time.Duration
}

// ReadClock reads the clocks twice. They are the machine's, in whatever container kdiag runs. While chrony or ntpd
// slews, the two clocks are slewed alike and Jumped stays next to nothing; a step shows in full.
func ReadClock(ctx context.Context, between time.Duration) (Clock, error) {
	before, after, _, err := twice(ctx, between, readInstants)
	if err != nil {
		return Clock{}, err
	}
	var tx unix.Timex // Modes 0 changes nothing
	if _, err := unix.Adjtimex(&tx); err != nil {
		return Clock{}, fmt.Errorf("asking for the clock's discipline: %w", err)
	}
	over := after.monotonic - before.monotonic
	return Clock{
		Synchronised: tx.Status&unix.STA_UNSYNC == 0,
		MaxError:     time.Duration(tx.Maxerror) * time.Microsecond,
		Suspended:    after.boot - after.monotonic,
		Jumped:       after.wall - before.wall - over,
		Over:         over,
	}, nil
}

func readInstants() (instants, error) {
	var now instants
	for id, to := range map[int32]*time.Duration{
		unix.CLOCK_REALTIME: &now.wall, unix.CLOCK_MONOTONIC: &now.monotonic, unix.CLOCK_BOOTTIME: &now.boot,
	} {
		var t unix.Timespec
		if err := unix.ClockGettime(id, &t); err != nil {
			return now, fmt.Errorf("reading clock %d: %w", id, err)
		}
		*to = time.Duration(t.Nano())
	}
	return now, nil
}
