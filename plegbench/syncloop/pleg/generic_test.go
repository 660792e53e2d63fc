package pleg

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestRelistSendsEventsAndInspectsWhatChanged(t *testing.T) {
	b := newHarness(t, time.Second)
	b.runtime.put("p", "a", container.Running)
	b.runtime.put("q", "c", container.Created)
	b.runtime.put("r", "d", container.Running)
	b.runtime.put("s", "e", container.Exited) // began and ended between two relists
	b.Relist(t.Context())
	b.sent("p ContainerStarted a", "r ContainerStarted d", "s ContainerDied e") // created is inspected without an event
	b.inspected("p", "q", "r", "s")
	b.runtime.put("q", "c", container.Unknown) // which created is to PLEG, too
	b.Relist(t.Context())
	b.sent()
	b.inspected()
	b.runtime.put("p", "a", container.Exited)
	b.Relist(t.Context())
	b.sent("p ContainerDied a")
	b.log.Has(t, `"level"=2 "msg"="Generic (PLEG): container finished" "podID"="p" "containerID"="a" "exitCode"=7`)
	b.runtime.put("p", "a", "")
	b.runtime.put("q", "c", "")
	b.runtime.put("r", "d", container.Unknown)
	b.runtime.put("s", "e", container.Running)
	b.Relist(t.Context())
	b.sent("p ContainerRemoved a", "q ContainerDied c", "q ContainerRemoved c", "s ContainerStarted e")
	b.inspected("p", "r", "s")
	b.cached("p", "")
	looptest.Equal(t, "records", 2, len(b.records))
}

// A pod cannot be inspected: its error is cached, its events wait, the others go on.
func TestFailedInspectionFreezesRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, time.Second)
		b.runtime.put("sick", "a", container.Running)
		b.runtime.put("well", "b", container.Running)
		b.runtime.statusErr["sick"] = errSick
		before := time.Now()
		time.Sleep(time.Second)
		for range 2 {
			b.Relist(t.Context())
		}
		b.sent("well ContainerStarted b")
		if _, err := b.Cache.GetNewerThan(t.Context(), "sick", before); !errors.Is(err, errSick) {
			t.Errorf("cached error: %v", err)
		}
		_, err := b.Cache.GetNewerThan(t.Context(), "unknown", before)
		looptest.Must(t, err)
		if n, err := b.State().Uninspected, b.Healthy(); n != 1 || err != nil { // one pod's failure is not PLEG's
			t.Errorf("%d uninspected, %v", n, err)
		}
		b.runtime.put("sick", "a", container.Exited) // it ran and died: only the death is sent
		delete(b.runtime.statusErr, "sick")
		b.Relist(t.Context())
		b.sent("sick ContainerDied a")
		b.RequestReinspect("well")
		b.Relist(t.Context())
		b.sent("well PodSync ")
	})
}

func TestFullChannelLosesEvents(t *testing.T) {
	b := newHarness(t, time.Second)
	for i := range eventCapacity + 1 {
		b.runtime.put("p", fmt.Sprint(i), container.Running)
	}
	b.Relist(t.Context())
	n := b.State()
	looptest.Equal(t, "events that wait, and that were discarded", []int{eventCapacity, 1}, []int{n.Queued, n.Discarded})
	b.log.Has(t, `"msg"="Event channel is full, discard this relist() cycle event"`)
	if err := (&Evented{Generic: b.Generic}).Healthy(); err == nil {
		t.Error("evented PLEG is healthy with a full channel")
	}
	for range eventCapacity {
		<-b.events
	}
	b.Relist(t.Context())
	b.sent() // a lost event does not come back
}

func TestCacheNewerThan(t *testing.T) {
	at := func(s int64) time.Time {
		if s == 0 {
			return time.Time{}
		}
		return time.Unix(s, 0)
	}
	type steps []func(*Cache)
	set := func(uid types.UID, s int64) func(*Cache) {
		return func(c *Cache) { c.Set(uid, &container.PodStatus{UID: uid}, nil, at(s)) }
	}
	relisted := func(s int64) func(*Cache) { return func(c *Cache) { c.UpdateTime(at(s)) } }
	observed := func(s int64) func(*Cache) { return func(c *Cache) { c.SetObservedTime("p", at(s)) } }
	gone := func(c *Cache) { c.Delete("p") }
	for name, tt := range map[string]struct {
		before steps
		wanted int64 // 0: the first sync
		after  steps // nil: it must not block
		blocks bool  // even after after
	}{
		"first sync, nothing relisted":   {nil, 0, steps{}, true},
		"first sync, no entry, relisted": {steps{relisted(1)}, 0, nil, false},
		"equal does not pass at once":    {steps{relisted(5)}, 5, steps{}, true},
		"equal wakes by relist":          {nil, 5, steps{relisted(5)}, false},
		"equal wakes by observation":     {nil, 5, steps{observed(5)}, false},
		"older does not wake":            {nil, 5, steps{set("p", 4), relisted(4)}, true},
		"Delete does not wake":           {steps{set("p", 1)}, 5, steps{gone}, true},
		"observed after":                 {steps{set("p", 1), observed(6)}, 5, nil, false},
	} {
		looptest.Bubble(t, name, func(t *testing.T) {
			c := NewCache()
			for _, f := range tt.before {
				f(c)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := c.GetNewerThan(ctx, "p", at(tt.wanted))
				done <- err
			}()
			synctest.Wait()
			looptest.Equal(t, "blocks at first", tt.after != nil, len(done) == 0)
			for _, f := range tt.after {
				f(c)
			}
			synctest.Wait()
			cancel()
			if err := <-done; tt.blocks != errors.Is(err, context.Canceled) {
				t.Errorf("blocks at the end: %v, want %v", err, tt.blocks)
			}
		})
	}
}
