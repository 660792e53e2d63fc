package gc

import (
	"context"
	"sync"

	"github.com/kdiag/kdiag/crictl"
)

// lookers is how many status calls Look makes at a time: a kubelet makes them one after the other, so a few at once are
// what two kubelets would do.
const lookers = 4

// When a Look stops asking: after podMisses unanswered calls of one pod, whose other containers are then left out, since
// one stuck lock makes all of a pod hang; and altogether when that many pods in a row have not answered, which is the
// runtime and no pod.
const (
	podMisses = 2
	allMisses = 4
)

// A Candidate is a container whose end is to be asked for.
type Candidate struct{ ID, PodUID string }

// Missed says for how many containers a Look got no good answer, or did not ask for want of one.
type Missed struct {
	Count int
	First string // the first error; empty when the time was up
}

// Look asks for the ends of containers, in the order given, until ctx ends. The ends that could not be had are missing
// in the result, and counted; containers that are gone are not. progress, if not nil, is told how many have been asked
// for; it must not block.
func Look(
	ctx context.Context, client *crictl.Client, of []Candidate, progress func(asked int),
) (map[string]End, Missed) {
	l := looking{of: of, ends: make(map[string]End, len(of)), pods: map[string]int{}, row: map[string]bool{}, progress: progress}
	var wg sync.WaitGroup
	for range min(lookers, len(of)) {
		wg.Go(func() {
			for c, ok := l.take(ctx); ok; c, ok = l.take(ctx) {
				st, call := client.ContainerStatus(ctx, c.ID)
				l.put(c, st, call)
			}
		})
	}
	wg.Wait()
	l.missed.Count += len(of) - l.next
	return l.ends, l.missed
}

// A looking is the state of one Look.
type looking struct {
	mu       sync.Mutex
	of       []Candidate
	next     int
	ends     map[string]End
	pods     map[string]int  // unanswered calls by pod UID
	row      map[string]bool // pods that did not answer, since the last one that did
	missed   Missed
	progress func(int)
}

// take returns the next to be asked for.
func (l *looking) take(ctx context.Context) (Candidate, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.next < len(l.of) && len(l.row) < allMisses && ctx.Err() == nil {
		c := l.of[l.next]
		l.next++
		if l.progress != nil {
			l.progress(l.next)
		}
		if l.pods[c.PodUID] < podMisses {
			return c, true
		}
		l.missed.Count++
	}
	return Candidate{}, false
}

func (l *looking) put(c Candidate, st *crictl.ContainerStatus, call crictl.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case call.OK():
		clear(l.row)
		l.pods[c.PodUID] = 0
		if st.State == crictl.ContainerExited && st.ID == c.ID {
			l.ends[c.ID] = End{FinishedAt: st.FinishedAt, ExitCode: st.ExitCode, Reason: st.Reason}
		}
	case call.Code == crictl.NotFound:
		clear(l.row)
	default:
		l.missed.Count++
		if l.missed.First == "" && call.Code != crictl.Canceled {
			l.missed.First = call.Method + ": " + string(call.Code) + ": " + call.Err
		}
		l.pods[c.PodUID]++
		l.row[c.PodUID] = true
	}
}
