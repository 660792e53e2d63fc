package kuberuntime

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// How many pods and further containers a gate lets be started at a time, and for how long a start counts. A start is work for a
// CPU and a disk: more at a time than these can do makes each of them slower and all of them later (docs/bench). One that takes
// longer waits for something, such as an image, and must not hold up others. A new pod keeps its place from its sandbox to its
// first container: all sandboxes first and then all containers took longer.
const (
	startsPerCPU = 4
	startCounts  = 3 * time.Second
)

// A gate lets few starts work at a time. The kubelet has none.
type gate chan struct{}

func newGate() gate { return make(gate, startsPerCPU*runtime.GOMAXPROCS(0)) }

// enter waits for a place, or for the end of ctx, and returns how to leave. A place is left by itself after startCounts.
func (g gate) enter(ctx context.Context) (leave func()) {
	select {
	case g <- struct{}{}:
	case <-ctx.Done():
		return func() {} // the call that follows says why
	}
	once := sync.OnceFunc(func() { <-g })
	timer := time.AfterFunc(startCounts, once)
	return func() {
		timer.Stop()
		once()
	}
}
