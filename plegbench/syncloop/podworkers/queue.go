package podworkers

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// jitterFactor bounds the random growth of a delay, so that pods do not become due together
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

// requeueAfter returns the delay, before jitter, until a pod is due again. moved reports that it went on to the next
// phase.
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

// enqueue makes a pod due after a delay, and not at an earlier or later time set before. The lock is held.
func (w *Workers) enqueue(uid types.UID, delay time.Duration) {
	w.due[uid] = time.Now().Add(jitter(delay))
}

// GetWork removes the pods that are due to be synced again from the queue, and returns them.
func (w *Workers) GetWork() map[types.UID]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := map[types.UID]bool{}
	for uid, at := range w.due {
		if !at.After(time.Now()) {
			due[uid] = true
			delete(w.due, uid)
		}
	}
	return due
}
