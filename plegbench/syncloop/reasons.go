package syncloop

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
)

// reasons are why containers could not be started the last time, for the pods' statuses (reasonCache upstream).
type reasons struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]startError // by pod and container
}

type startError struct {
	reason  error
	message string
}

// set takes what a sync did. A container that was not tried keeps its reason.
func (r *reasons) set(uid types.UID, result kuberuntime.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range result.Actions {
		if a.Action != kuberuntime.ActionStartContainer {
			continue
		}
		if a.Err == nil {
			delete(r.pods[uid], a.Target)
			continue
		}
		if r.pods == nil {
			r.pods = map[types.UID]map[string]startError{}
		}
		if r.pods[uid] == nil {
			r.pods[uid] = map[string]startError{}
		}
		r.pods[uid][a.Target] = startError{a.Err, a.Message}
	}
}

//lint:ignore ST1008 the reason is what is asked for, not how the asking went
func (r *reasons) get(uid types.UID, name string) (reason error, message string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.pods[uid][name]
	return e.reason, e.message, ok
}

func (r *reasons) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
}
