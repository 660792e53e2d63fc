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
	// Jumped is by how much more the wall clock advanced than the monotonic one between the two reads of this run.
	Jumped time.Duration
	Over   time.Duration // between the reads
}

// ReadClock reads the clocks twice. They are the machine's, in whatever container kdiag runs. While chrony or ntpd
// slews, the two clocks are slewed alike and Jumped stays next to nothing; a step shows in full.
func ReadClock(ctx context.Context, between time.Duration) (Clock, error) {
	before, after, _, err := twice(ctx, between, func() (time.Time, error) { return time.Now(), nil })
	if err != nil {
		return Clock{}, err
	}
	var tx unix.Timex // Modes 0 changes nothing
	if _, err := unix.Adjtimex(&tx); err != nil {
		return Clock{}, fmt.Errorf("asking for the clock's discipline: %w", err)
	}
	over := after.Sub(before) // by the monotonic clock, which Round drops
	return Clock{
		Synchronised: tx.Status&unix.STA_UNSYNC == 0,
		MaxError:     time.Duration(tx.Maxerror) * time.Microsecond,
		Jumped:       after.Round(0).Sub(before.Round(0)) - over,
		Over:         over,
	}, nil
}
