package host

import (
	"context"
	"fmt"
	"time"
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
	synchronised, maxError, err := discipline()
	if err != nil {
		return Clock{}, fmt.Errorf("asking for the clock's discipline: %w", err)
	}
	over := after.Sub(before) // by the monotonic clock, which Round drops
	return Clock{
		Synchronised: synchronised,
		MaxError:     maxError,
		Jumped:       after.Round(0).Sub(before.Round(0)) - over,
		Over:         over,
	}, nil
}
