package podworkers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// Whatever comes in, in whatever order and however slow and faulty each step is: no pod is in two steps at a time, none
// goes back a step (both seen by fakeSyncer), every wait for an end is answered, and once no source wants anything
// every worker ends, in two housekeeping rounds after the trouble is over.
func FuzzEveryWorkerEnds(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, 300)
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps int) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{
				harness: newHarness(t), r: rand.New(rand.NewPCG(seed, 2)), desired: map[types.UID]*v1.Pod{},
				sick: map[types.UID]bool{},
			}
			for range min(max(steps, 0), 1000) {
				h.next()
			}
			h.syncer.set(func(s *fakeSyncer) { clear(s.err); clear(s.terminal); s.takes = 0 })
			for uid := range h.sick {
				h.cache.Delete(uid)
			}
			h.cache.UpdateTime(always)
			for range 3 {
				synctest.Wait()
				h.SyncKnownPods(nil)
				time.Sleep(time.Hour)
			}
			testkit.Equal(t, "workers left", 0, len(h.States()))
			for i, ch := range h.waits {
				select {
				case <-ch:
				default:
					t.Errorf("wait %d was never answered", i)
				}
			}
			testkit.Equal(t, "names still taken", 0, len(h.startedStatic))
			ends := h.IsPodForMirrorPodTerminatingByFullName("web0_shop")
			testkit.Equal(t, "a pod still ends", false, ends)
			h.wg.Wait()
		})
	})
}

// A history is a random one.
type history struct {
	*harness
	r       *rand.Rand
	n       int // of incarnations: a UID that was used up is not used again, but for static pods created twice
	desired map[types.UID]*v1.Pod
	waits   []chan struct{}
	sick    map[types.UID]bool // pods that PLEG cannot inspect
}

func (h *history) pick() *v1.Pod {
	for _, p := range h.desired { // the map's order is chance enough
		return p.DeepCopy()
	}
	return nil
}

func (h *history) next() {
	switch p := h.pick(); h.r.IntN(12) {
	case 0, 1:
		h.n++
		fresh := looptest.Pod(fmt.Sprintf("p%d", h.n))
		if h.r.IntN(2) == 0 {
			fresh = staticPod(fmt.Sprintf("s%d", h.n), fmt.Sprintf("web%d", h.r.IntN(2)))
		}
		if h.r.IntN(5) == 0 {
			fresh.Status.Phase = v1.PodFailed
		}
		h.desired[fresh.UID] = fresh
		h.create(fresh)
	case 2, 3:
		if p != nil {
			h.UpdatePod(UpdatePodOptions{Type: []UpdateType{Sync, Update}[h.r.IntN(2)], Pod: p, StartTime: time.Now()})
		}
	case 4:
		if p != nil {
			looptest.Deleted(int64(h.r.IntN(30)))(p)
			h.desired[p.UID] = p
			h.UpdatePod(UpdatePodOptions{Type: Update, Pod: p})
		}
	case 5:
		if p != nil {
			ch, grace := make(chan struct{}), int64(h.r.IntN(30))
			h.waits = append(h.waits, ch)
			h.kill(p, &KillPodOptions{Completed: ch, Evict: h.r.IntN(2) == 0, GraceOverride: &grace})
		}
	case 6:
		if p != nil {
			delete(h.desired, p.UID)
			h.kill(p, nil)
		}
	case 7:
		h.n++
		uid := types.UID(fmt.Sprintf("o%d", h.n))
		if p != nil && h.r.IntN(2) == 0 {
			uid = p.UID
		}
		h.UpdatePod(UpdatePodOptions{Type: Kill, RunningPod: &container.Pod{UID: uid, Name: string(uid), Namespace: "ns"}})
	case 8:
		h.SyncKnownPods(slices.Collect(maps.Values(h.desired)))
	case 9:
		h.trouble()
	default:
		time.Sleep(time.Duration(h.r.IntN(20)) * time.Second)
		for uid := range h.GetWork() {
			if p := h.desired[uid]; p != nil {
				h.UpdatePod(UpdatePodOptions{Type: Sync, Pod: p})
			}
		}
	}
}

// trouble changes what goes wrong and how long each step takes.
func (h *history) trouble() {
	fail := func(step string, s *fakeSyncer) {
		delete(s.err, step)
		if h.r.IntN(2) == 0 {
			s.err[step] = errSick
		}
	}
	uid := types.UID(fmt.Sprintf("p%d", h.r.IntN(h.n+1)))
	h.syncer.set(func(s *fakeSyncer) {
		fail("sync", s)
		fail("terminating", s)
		fail("terminated", s)
		s.takes = time.Duration(h.r.IntN(3)) * 5 * time.Second
		s.terminal[uid] = true
	})
	h.cache.UpdateTime([]time.Time{{}, time.Now(), always, always}[h.r.IntN(4)])
	sick := types.UID(fmt.Sprintf("%c%d", "ps"[h.r.IntN(2)], h.r.IntN(h.n+1)))
	if h.sick[sick] = !h.sick[sick]; h.sick[sick] {
		h.cache.Set(sick, nil, errSick, time.Now())
	} else {
		h.cache.Delete(sick)
	}
}
