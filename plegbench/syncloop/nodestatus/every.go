package nodestatus

import (
	"context"
	"math/rand/v2"
	"time"
)

// every calls do at once and again when a period has passed since do returned, until ctx ends. Each pause is longer by a
// random part of the period, up to jitter times it.
func every(ctx context.Context, period time.Duration, jitter float64, do func(ctx context.Context)) error {
	for {
		do(ctx)
		if !sleep(ctx, period+time.Duration(rand.Float64()*jitter*float64(period))) {
			return ctx.Err()
		}
	}
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
