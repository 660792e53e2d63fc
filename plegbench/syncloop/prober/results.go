package prober

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A Result is the result of a container's probes, after thresholds.
type Result int

// The results.
const (
	Unknown Result = iota - 1
	Success
	Failure
)

// String is the kubelet's name of a result.
func (r Result) String() string {
	switch r {
	case Success:
		return "Success"
	case Failure:
		return "Failure"
	}
	return "UNKNOWN"
}

// An Update is a changed result.
type Update struct {
	ContainerID container.ID
	PodUID      types.UID
	Result      Result
}

// updatesCap is how many changes wait for the syncLoop (pkg/kubelet/prober/results upstream). If it reads no more of
// them, the probes block.
const updatesCap = 20

// Results are the results of one kind of probe, by container. They are safe for use by several goroutines.
type Results struct {
	updates chan Update

	mu     sync.RWMutex
	result map[container.ID]Result
}

// NewResults makes Results without any.
func NewResults() *Results {
	return &Results{updates: make(chan Update, updatesCap), result: map[container.ID]Result{}}
}

// Get is the result of a container; ok is false if there is none.
func (r *Results) Get(id container.ID) (result Result, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	result, ok = r.result[id]
	return result, ok
}

// Set stores a result. If it is a new one, Set waits until the update is taken, or ctx ends.
func (r *Results) Set(ctx context.Context, id container.ID, uid types.UID, result Result) {
	r.mu.Lock()
	old, ok := r.result[id]
	r.result[id] = result
	r.mu.Unlock()
	if ok && old == result {
		return
	}
	select {
	case r.updates <- Update{ContainerID: id, PodUID: uid, Result: result}:
	case <-ctx.Done():
	}
}

// Remove forgets a container. That is no update.
func (r *Results) Remove(id container.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.result, id)
}

// Updates are the changes, for one reader.
func (r *Results) Updates() <-chan Update { return r.updates }
