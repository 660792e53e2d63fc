package gc

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kdiag/kdiag/crictl"
)

const (
	// endCalls is how many status calls ReadEnds makes at a time: a kubelet makes them one after the other.
	endCalls = 4
	// stuckPods is how many pods may not answer before ReadEnds stops: then it is the runtime and not a pod.
	stuckPods = 4
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
// not be read, which Missed counts, and the ends of containers that no longer exist, which it does not. Once a
// container of a pod does not answer, the others of the pod are left out: one stuck lock makes all of a pod hang.
// progress, if not nil, is called with the number of containers asked for; it must not block.
func ReadEnds(
	ctx context.Context, client *crictl.Client, of []Candidate, progress func(asked int),
) (map[string]End, Missed) {
	var mu sync.Mutex
	var missed Missed
	ends, stuck := make(map[string]End, len(of)), map[string]bool{}
	calls := errgroup.Group{}
	calls.SetLimit(endCalls)
	for i := range of {
		c := &of[i]
		mu.Lock()
		leave := stuck[c.PodUID] || len(stuck) >= stuckPods || ctx.Err() != nil
		if leave {
			missed.Count++
		}
		mu.Unlock()
		if progress != nil {
			progress(i + 1)
		}
		if leave {
			continue
		}
		calls.Go(func() error {
			status, call := client.ContainerStatus(ctx, c.ID)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case call.OK() && status.State == crictl.ContainerExited:
				ends[c.ID] = End{FinishedAt: status.FinishedAt, ExitCode: status.ExitCode, Reason: status.Reason}
			case !call.OK() && call.Code != crictl.NotFound:
				missed.Count++
				stuck[c.PodUID] = true
				if missed.First == "" && call.Code != crictl.Canceled {
					missed.First = describe(call)
				}
			}
			return nil
		})
	}
	_ = calls.Wait() // no call returns an error
	return ends, missed
}
