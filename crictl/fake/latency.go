package fake

import (
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// A latencyRule is a latency with its calls counted.
type latencyRule struct {
	Latency
	number int // among the scenario's latencies
	calls  atomic.Uint64
}

// goldenRatio spreads successive multiples evenly over [0, 1) however many there are.
const goldenRatio = 0.6180339887498949

// next returns how long a call of that method waits before it is handled. The jitter of a call about one sandbox or container
// depends on the object, so that the order in which concurrent callers ask does not matter; that of other calls
// on their number.
func (l *latencyRule) next(method string, about func() Target) time.Duration {
	wait := time.Duration(l.Base)
	if l.Jitter == 0 {
		return wait
	}
	if id := about().ID; id != "" {
		return wait + time.Duration(number(uint64(l.Jitter)+1, method, id, strconv.Itoa(l.number)))
	}
	_, share := math.Modf(float64(l.calls.Add(1)) * goldenRatio)
	return wait + time.Duration(share*float64(l.Jitter))
}
