package fake

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// A latencyRule is a latency with its pattern resolved.
type latencyRule struct {
	Latency
	rpcs   map[string]bool
	number int // among the scenario's latencies
	calls  atomic.Uint64
}

// goldenRatio spreads successive multiples evenly over [0, 1) however many there are.
const goldenRatio = 0.6180339887498949

// next returns how long a call of that method waits before it is handled. The jitter of a call about one sandbox or container
// depends on the object, so that the order in which concurrent callers ask does not matter; that of other calls
// on their number.
func (l *latencyRule) next(method string, about func() target) time.Duration {
	wait := time.Duration(l.Base)
	if l.Jitter == 0 {
		return wait
	}
	if id := about().id; id != "" {
		return wait + time.Duration(number(uint64(l.Jitter)+1, method, id, strconv.Itoa(l.number)))
	}
	_, share := math.Modf(float64(l.calls.Add(1)) * goldenRatio)
	return wait + time.Duration(share*float64(l.Jitter))
}

// A pace is what a list's handler needs to slow down by the number of its items.
type pace struct {
	rule *latencyRule
	done <-chan struct{}
}

type latencyKey struct{}

// perItem waits for the latency of n items of a list, if the call has one.
func perItem(ctx context.Context, n int) error {
	p, ok := ctx.Value(latencyKey{}).(pace)
	if !ok {
		return nil
	}
	each := time.Duration(p.rule.PerItem)
	if n > 0 && each > math.MaxInt64/time.Duration(n) {
		return sleep(ctx, p.done, math.MaxInt64)
	}
	return sleep(ctx, p.done, each*time.Duration(n))
}
