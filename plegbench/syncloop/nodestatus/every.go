package nodestatus

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// every calls do at once and again when a period has passed since do returned, until ctx ends. Each pause is longer
// by a random part of the period, up to jitter times it.
func every(ctx context.Context, period time.Duration, jitter float64, do func(ctx context.Context)) error {
	wait.JitterUntilWithContext(ctx, do, period, jitter, true)
	return ctx.Err()
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
