package podworkers

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// jitterFactor is by how much a delay may grow, at random, so that pods do not become due together
// (workerResyncIntervalJitterFactor and workerBackOffPeriodJitterFactor in pkg/kubelet/pod_workers.go).
const jitterFactor = 0.5

func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*jitterFactor*float64(d))
}

// A BackOffError is the error of a sync that waits for the end of a back-off.
type BackOffError struct {
	Err   error
	Until time.Time
}

func (e *BackOffError) Error() string { return e.Err.Error() }
func (e *BackOffError) Unwrap() error { return e.Err }

// requeueAfter is when a pod is due again after a step, before jitter. moved reports that it went on to the next step.
func (c *Config) requeueAfter(moved bool, err error) time.Duration {
	var backOff *BackOffError
	switch {
	case moved:
		return 0
	case err == nil:
		return c.ResyncInterval
	case strings.Contains(err.Error(), ErrNetworkNotReady.Error()):
		return c.TransientBackOff
	case errors.As(err, &backOff):
		return min(max(0, time.Until(backOff.Until)), c.ResyncInterval)
	}
	return min(c.BackOff, c.ResyncInterval)
}

// A WorkQueue has the time at which each pod is due to be synced again.
type WorkQueue struct {
	mu  sync.Mutex
	due map[types.UID]time.Time
}

// Enqueue makes a pod due after a delay, and not at an earlier or later time set before.
func (q *WorkQueue) Enqueue(uid types.UID, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due[uid] = time.Now().Add(delay)
}

// Ready removes the pods that are due and returns them.
func (q *WorkQueue) Ready() map[types.UID]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	ready := map[types.UID]bool{}
	for uid, t := range q.due {
		if !t.After(now) {
			ready[uid] = true
			delete(q.due, uid)
		}
	}
	return ready
}
