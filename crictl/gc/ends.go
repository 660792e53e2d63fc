package gc

import (
	"context"
	"sync"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

const (
	// endCalls is how many status calls ReadEnds makes at a time: a kubelet makes them one after the other.
	endCalls = 4
	// podMisses is how many calls of one pod may stay unanswered before its other containers are left out: one stuck lock
	// makes all of a pod hang.
	podMisses = 2
	// allMisses is how many pods in a row may not answer before ReadEnds stops: then it is the runtime and not a pod.
	allMisses = 4
)

// An End is how a container ended, from ContainerStatus.
type End struct {
	FinishedAt time.Time
	ExitCode   int32
	Reason     string // such as OOMKilled
}

// Missed counts the containers whose end could not be read.
type Missed struct {
	Count int
	First string // the first error; empty when the time was up
}

// ReadEnds asks for the ends of containers, in the order given, until ctx ends. The result lacks the ends that could
// not be read, which Missed counts, and those of containers that no longer exist, which it does not. progress, if not
// nil, is called with the number of containers asked for; it must not block.
func ReadEnds(
	ctx context.Context, client *crictl.Client, of []Candidate, progress func(asked int),
) (map[string]End, Missed) {
	r := endReader{
		of: of, ends: make(map[string]End, len(of)), pods: map[string]int{}, silent: map[string]bool{},
		progress: progress,
	}
	var wg sync.WaitGroup
	for range min(endCalls, len(of)) {
		wg.Go(func() {
			for c := r.next(ctx); c != nil; c = r.next(ctx) {
				status, call := client.ContainerStatus(ctx, c.ID)
				r.add(c, status, call)
			}
		})
	}
	wg.Wait()
	r.missed.Count += len(of) - r.asked
	return r.ends, r.missed
}

// An endReader is the state of one ReadEnds.
type endReader struct {
	mu       sync.Mutex
	of       []Candidate
	asked    int
	ends     map[string]End
	pods     map[string]int  // unanswered calls by pod UID
	silent   map[string]bool // pods that did not answer, since the last one that did
	missed   Missed
	progress func(int)
}

// next returns the next container to ask for, nil at the end.
func (r *endReader) next(ctx context.Context) *Candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.asked < len(r.of) && len(r.silent) < allMisses && ctx.Err() == nil {
		c := &r.of[r.asked]
		r.asked++
		if r.progress != nil {
			r.progress(r.asked)
		}
		if r.pods[c.PodUID] < podMisses {
			return c
		}
		r.missed.Count++
	}
	return nil
}

func (r *endReader) add(c *Candidate, status *crictl.ContainerStatus, call crictl.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case call.OK():
		clear(r.silent)
		r.pods[c.PodUID] = 0
		if status.State == crictl.ContainerExited && status.ID == c.ID {
			r.ends[c.ID] = End{FinishedAt: status.FinishedAt, ExitCode: status.ExitCode, Reason: status.Reason}
		}
	case call.Code == crictl.NotFound:
		clear(r.silent)
	default:
		r.missed.Count++
		if r.missed.First == "" && call.Code != crictl.Canceled {
			r.missed.First = describe(call)
		}
		r.pods[c.PodUID]++
		r.silent[c.PodUID] = true
	}
}

// describe returns a failed call as text.
func describe(call crictl.Call) string {
	return call.Method + ": " + string(call.Code) + ": " + call.Err
}
