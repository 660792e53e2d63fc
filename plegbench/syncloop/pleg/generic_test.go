package pleg

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func TestRelistSendsEventsAndInspectsWhatChanged(t *testing.T) {
	b := newBench(t, nil)
	b.runtime.exit = 7
	b.runtime.put("p", "a", container.Running)
	b.runtime.put("q", "c", container.Created)
	b.Relist(t.Context())
	if diff := cmp.Diff([]string{"p ContainerStarted a"}, b.sent()); diff != "" {
		t.Error(diff) // a created container is inspected without an event
	}
	if diff := cmp.Diff([]types.UID{"p", "q"}, b.runtime.takeInspected()); diff != "" {
		t.Error(diff)
	}
	b.log.take()
	b.Relist(t.Context())
	if got := append(b.sent(), fmt.Sprint(b.runtime.takeInspected())); len(got) != 1 || got[0] != "[]" {
		t.Errorf("nothing changed, but: %v", got)
	}
	b.runtime.put("p", "a", container.Exited)
	b.log.take()
	b.Relist(t.Context())
	if diff := cmp.Diff([]string{"p ContainerDied a"}, b.sent()); diff != "" {
		t.Error(diff)
	}
	want := `"level"=2 "msg"="Generic (PLEG): container finished" "podID"="p" "containerID"="a" "exitCode"=7`
	if lines := strings.Join(b.log.take(), "\n"); !strings.Contains(lines, want) {
		t.Errorf("no line %s in\n%s", want, lines)
	}
	b.runtime.put("p", "a", "")
	b.runtime.put("q", "c", "")
	b.Relist(t.Context())
	if diff := cmp.Diff([]string{"p ContainerRemoved a", "q ContainerDied c", "q ContainerRemoved c"}, b.sent()); diff != "" {
		t.Error(diff)
	}
	if s, err := b.cache.Get("p"); err != nil || s.Name != "" || len(b.records) != 0 {
		t.Errorf("left behind: %v %v %v", s, err, b.records)
	}
}

// A pod that cannot be inspected: its error is cached, its events wait, the others go on.
func TestFailedInspectionFreezesRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.runtime.put("sick", "a", container.Running)
		b.runtime.put("well", "b", container.Running)
		b.runtime.statusErr["sick"] = errSick
		before := time.Now()
		time.Sleep(time.Second)
		for range 2 {
			b.Relist(t.Context())
		}
		if diff := cmp.Diff([]string{"well ContainerStarted b"}, b.sent()); diff != "" {
			t.Error(diff)
		}
		if _, err := b.cache.GetNewerThan(t.Context(), "sick", before); !errors.Is(err, errSick) {
			t.Errorf("cached error: %v", err)
		}
		if _, err := b.cache.GetNewerThan(t.Context(), "unheard of", before); err != nil {
			t.Errorf("the cache's time did not move: %v", err)
		}
		if n := b.Snapshot().Uninspected; n != 1 {
			t.Errorf("%d uninspected", n)
		}
		if err := b.Healthy(); err != nil {
			t.Errorf("one pod's failure is not PLEG's: %v", err)
		}
		b.runtime.put("sick", "a", container.Exited) // it ran and died: only the death is sent
		delete(b.runtime.statusErr, "sick")
		b.Relist(t.Context())
		if diff := cmp.Diff([]string{"sick ContainerDied a"}, b.sent()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFullChannelLosesEvents(t *testing.T) {
	b := newBench(t, func(c *GenericConfig) { c.Capacity = 2 })
	for _, c := range []string{"a", "b", "c"} {
		b.runtime.put("p", c, container.Running)
	}
	b.Relist(t.Context())
	b.Relist(t.Context())
	if got := b.sent(); len(got) != 2 {
		t.Errorf("sent %v", got)
	}
	b.Relist(t.Context())
	if got := b.sent(); got != nil {
		t.Errorf("a lost event came back: %v", got)
	}
	if n, s := value(t, b.metrics.PLEGDiscardEvents), b.Snapshot(); n != 1 || s.Discarded != 1 {
		t.Errorf("discarded %v, %d", n, s.Discarded)
	}
	if lines := strings.Join(b.log.take(), "\n"); !strings.Contains(lines, `"msg"="Event channel is full, discard this relist() cycle event"`) {
		t.Error(lines)
	}
}

// The incident: lists that fail after two minutes each. Health counts from the start of the last good one.
func TestHealthWhileListsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		if err := b.Healthy(); err == nil || err.Error() != "pleg has yet to be successful" {
			t.Errorf("at first: %v", err)
		}
		b.start(t)
		synctest.Wait()
		seen := time.Now()
		if err := b.Healthy(); err != nil {
			t.Errorf("after a relist: %v", err)
		}
		if got := value(t, b.metrics.PLEGLastSeen); got != float64(seen.Unix()) {
			t.Errorf("last seen %v, want %v", got, seen.Unix())
		}
		b.runtime.set(func(f *fakeRuntime) { f.listTakes, f.listErr = 2*time.Minute, errSick })
		time.Sleep(3*time.Minute + 3*time.Second)
		want := "pleg was last seen active 3m3s ago; threshold is 3m0s"
		if err := b.Healthy(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		s := b.Snapshot()
		if got := time.Since(s.InProgressSince); got != time.Minute+time.Second || s.Failures != 1 || s.Relists != 2 {
			t.Errorf("in progress for %v, %+v", got, s) // 1 s idle, 2 m failed, 1 s idle, 1 m 1 s into the next
		}
		b.runtime.set(func(f *fakeRuntime) { f.listTakes, f.listErr = 90*time.Second, nil })
		time.Sleep(time.Minute) // the call under way keeps its two minutes, but succeeds
		if err := b.Healthy(); err != nil {
			t.Errorf("recovered: %v", err)
		}
	})
}

func TestOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *GenericConfig) { c.Period = time.Hour })
		b.start(t)
		time.Sleep(time.Second)
		b.runtime.put("p", "a", container.Running)
		lastSync := time.Now()
		time.Sleep(time.Second)
		b.RequestRelist("p")
		synctest.Wait()
		if diff := cmp.Diff([]string{"p ContainerStarted a"}, b.sent()); diff != "" {
			t.Error(diff)
		}
		if s, err := b.cache.GetNewerThan(t.Context(), "p", lastSync); err != nil || s.Find("a") == nil {
			t.Errorf("%v %v", s, err)
		}
		time.Sleep(time.Second)
		b.runtime.takeInspected()
		b.RequestRelist("p") // nothing changed: seen, not inspected
		synctest.Wait()
		if _, err := b.cache.GetNewerThan(t.Context(), "p", time.Now().Add(-time.Millisecond)); err != nil || b.runtime.takeInspected() != nil {
			t.Errorf("not observed: %v", err)
		}
		if got := time.Since(b.Snapshot().LastRelist); got != 3*time.Second {
			t.Errorf("health was refreshed: %v", got)
		}
		b.log.take()
		b.RequestRelist("nobody")
		synctest.Wait()
		want := `"msg"="GenericPLEG: Unable to retrieve pod" "error"="pod sandboxes not found" "podUID"="nobody"`
		if lines := strings.Join(b.log.take(), "\n"); !strings.Contains(lines, want) {
			t.Errorf("no %s in\n%s", want, lines)
		}
		if got := value(t, b.metrics.PLEGPodRelistDuration); got != 3 {
			t.Errorf("%v durations of pods", got)
		}
	})
}

// However often and whenever it is listed, and whichever inspections fail, the events replayed give what runs in the
// end.
func FuzzReplayReachesState(f *testing.F) {
	for seed := range uint64(5) {
		f.Add(seed, 200)
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps int) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, nil)
		choices := []container.State{container.Created, container.Running, container.Exited, container.Unknown, ""}
		for range min(max(steps, 0), 500) {
			uid := types.UID(fmt.Sprintf("p%d", r.IntN(4)))
			switch r.IntN(8) {
			case 0:
				b.Relist(t.Context())
			case 1:
				b.relistPod(t.Context(), uid)
			case 2:
				b.runtime.statusErr[uid] = errSick
			case 3:
				delete(b.runtime.statusErr, uid)
			default:
				b.runtime.put(uid, fmt.Sprintf("%s-c%d", uid, r.IntN(3)), choices[r.IntN(len(choices))])
			}
		}
		clear(b.runtime.statusErr)
		b.Relist(t.Context())
		got := map[string]bool{}
		for len(b.events) > 0 {
			switch e := <-b.events; e.Type {
			case ContainerStarted:
				got[e.Data] = true
			case ContainerDied, ContainerRemoved:
				delete(got, e.Data)
			}
		}
		want := map[string]bool{}
		for uid, p := range b.runtime.pods {
			cached, err := b.cache.Get(uid)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range p.Containers {
				if c.State == container.Running {
					want[c.ID.ID] = true
				}
				// Created and unknown are one to PLEG: a step between them is not looked at.
				i := cached.Find(c.Name)
				if i == nil || i.State != c.State && (i.State == container.Running || i.State == container.Exited) {
					t.Errorf("cached %v of %+v", i, c)
				}
			}
		}
		// A container that went on to created or unknown is neither started nor dead to the events.
		for c := range got {
			if states(b.runtime.pods[types.UID(c[:2])])[c] == unknown {
				delete(got, c)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
