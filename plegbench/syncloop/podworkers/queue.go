package podworkers

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// jitterFactor is by how much a delay may grow, at random, so that pods do not come due together (workerResyncIntervalJitterFactor
// and workerBackOffPeriodJitterFactor in pkg/kubelet/pod_workers.go).
const jitterFactor = 0.5

func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*jitterFactor*float64(d))
}

// An outcome is how a step ended.
type outcome struct {
	moved bool // on to the next step
	err   error
	now   time.Time
}

// requeueAfter is when the pod is due again, before jitter.
func requeueAfter(o outcome, cfg Config) time.Duration {
	switch {
	case o.moved:
		return 0
	case o.err == nil:
		return cfg.ResyncInterval
	case errors.Is(o.err, ErrNetworkNotReady), strings.Contains(o.err.Error(), ErrNetworkNotReady.Error()):
		return cfg.TransientBackOff
	}
	delay := cfg.BackOff
	if until, ok := earliestBackOff(o.err); ok {
		delay = until.Sub(o.now)
	}
	return min(max(0, delay), cfg.ResyncInterval)
}

// earliestBackOff looks through an error and all that it is made of for the first end of a back-off.
func earliestBackOff(err error) (until time.Time, ok bool) {
	if b, is := err.(interface{ BackOffUntil() time.Time }); is {
		return b.BackOffUntil(), true
	}
	var parts []error
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		parts = []error{wrapper.Unwrap()}
	case interface{ Unwrap() []error }:
		parts = wrapper.Unwrap()
	case interface{ Errors() []error }: // an aggregate of k8s.io/apimachinery
		parts = wrapper.Errors()
	}
	for _, part := range parts {
		if t, found := earliestBackOff(part); found && (!ok || t.Before(until)) {
			until, ok = t, true
		}
	}
	return until, ok
}

// A WorkQueue holds the times at which pods are due to be synced again, one for each.
type WorkQueue struct {
	mu  sync.Mutex
	due map[types.UID]time.Time
}

func newWorkQueue() *WorkQueue { return &WorkQueue{due: map[types.UID]time.Time{}} }

// Enqueue has a pod due after a delay, whenever it was due before.
func (q *WorkQueue) Enqueue(uid types.UID, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due[uid] = time.Now().Add(delay)
}

// Ready removes the pods whose time has come and returns them, those first that are due longest.
func (q *WorkQueue) Ready() []types.UID {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	at := map[types.UID]time.Time{}
	var ready []types.UID
	for uid, t := range q.due {
		if !t.After(now) {
			at[uid] = t
			ready = append(ready, uid)
			delete(q.due, uid)
		}
	}
	slices.SortFunc(ready, func(a, b types.UID) int {
		return cmp.Or(at[a].Compare(at[b]), cmp.Compare(a, b))
	})
	return ready
}
