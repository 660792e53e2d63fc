package gc

import (
	"context"
	"sync"

	"github.com/kdiag/kdiag/crictl"
)

// lookers is how many status calls Look makes at a time: a kubelet makes them one after the other, so a few at once are
// what two kubelets would do.
const lookers = 4

// maxMisses ends a Look early: a runtime that answers so many calls in a row not at all answers the next neither.
const maxMisses = 8

// Look asks for the ends of containers, in the order given, until ctx ends. The ends that could not be had are missing
// in the result; failed counts those for which the runtime did not answer well, gone containers apart. progress, if not
// nil, is told how many have been asked for; it must not block.
func Look(
	ctx context.Context, client *crictl.Client, ids []string, progress func(asked int),
) (ends map[string]End, failed int) {
	ends = make(map[string]End, len(ids))
	var mu sync.Mutex
	next, misses := 0, 0
	take := func() (string, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(ids) || misses >= maxMisses || ctx.Err() != nil {
			return "", false
		}
		next++
		if progress != nil {
			progress(next)
		}
		return ids[next-1], true
	}
	put := func(id string, st *crictl.ContainerStatus, call crictl.Call) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case call.OK():
			misses = 0
			if st.State == crictl.ContainerExited && st.ID == id {
				ends[id] = End{FinishedAt: st.FinishedAt, ExitCode: st.ExitCode, Reason: st.Reason}
			}
		case call.Code == crictl.NotFound:
			misses = 0
		default:
			failed++
			misses++
		}
	}
	var wg sync.WaitGroup
	for range min(lookers, len(ids)) {
		wg.Go(func() {
			for id, ok := take(); ok; id, ok = take() {
				st, call := client.ContainerStatus(ctx, id)
				put(id, st, call)
			}
		})
	}
	wg.Wait()
	return ends, failed + len(ids) - next
}
