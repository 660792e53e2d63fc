package pleg

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A Cache holds each pod's last status, or the error of its inspection (pkg/kubelet/container/cache.go).
type Cache struct {
	mu      sync.Mutex
	entries map[types.UID]*cacheEntry
	global  time.Time // all entries are at least as new; zero until the first relist has ended
	waiting map[types.UID][]*subscriber

	// onlyNewer makes Set refuse a status older than the present one: with two writers the later call is not always
	// the later inspection.
	onlyNewer atomic.Bool
}

type cacheEntry struct {
	status   *container.PodStatus
	err      error
	modified time.Time
	observed time.Time // of an on-demand relist that found no change
}

// A subscriber waits for one pod. Its channel has room for its only answer.
type subscriber struct {
	newerThan time.Time
	answer    chan *cacheEntry
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{entries: map[types.UID]*cacheEntry{}, waiting: map[types.UID][]*subscriber{}}
}

// Get returns a pod's status and the error of its last inspection. A pod that was never inspected has an empty status
// and no error, which means that the runtime does not have it.
func (c *Cache) Get(uid types.UID) (*container.PodStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.get(uid)
	return e.status, e.err
}

func (c *Cache) get(uid types.UID) *cacheEntry {
	if e := c.entries[uid]; e != nil {
		return e
	}
	return &cacheEntry{status: &container.PodStatus{UID: uid}}
}

// GetNewerThan returns the same as Get, but waits until it is newer than t. It has no deadline: while PLEG hangs its
// callers hang. ctx ends with the whole syncLoop, not with a pod's sync: upstream has no context here at all.
func (c *Cache) GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*container.PodStatus, error) {
	c.mu.Lock()
	if c.newer(uid, t) {
		defer c.mu.Unlock()
		e := c.get(uid)
		return e.status, e.err
	}
	s := &subscriber{newerThan: t, answer: make(chan *cacheEntry, 1)}
	c.waiting[uid] = append(c.waiting[uid], s)
	c.mu.Unlock()
	select {
	case e := <-s.answer:
		return e.status, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newer reports a time strictly after t. notify also accepts t itself, as upstream.
func (c *Cache) newer(uid types.UID, t time.Time) bool {
	e := c.get(uid)
	return c.global.After(t) || e.modified.After(t) || e.observed.After(t)
}

// Set stores a pod's status, or the error of its inspection, with its time, and reports whether it did.
func (c *Cache) Set(uid types.UID, status *container.PodStatus, err error, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[uid]; e != nil && c.onlyNewer.Load() && at.Before(e.modified) {
		return false
	}
	c.entries[uid] = &cacheEntry{status: status, err: err, modified: at}
	c.notify(uid, at)
	return true
}

// Delete removes a pod. It wakes no subscribers: they wait for the end of the relist.
func (c *Cache) Delete(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, uid)
}

// UpdateTime records that all pods were inspected at t or later, also those without an entry.
func (c *Cache) UpdateTime(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.global = t
	for uid := range c.waiting {
		c.notify(uid, t)
	}
}

// SetObservedTime records that one pod was listed at t or later and that its status is still valid.
func (c *Cache) SetObservedTime(uid types.UID, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[uid]; e != nil {
		e.observed = t
	}
	c.notify(uid, t)
}

// notify answers the subscribers of a pod that wait for a time not after at.
func (c *Cache) notify(uid types.UID, at time.Time) {
	c.waiting[uid] = slices.DeleteFunc(c.waiting[uid], func(s *subscriber) bool {
		if at.Before(s.newerThan) {
			return false
		}
		s.answer <- c.get(uid)
		return true
	})
	if len(c.waiting[uid]) == 0 {
		delete(c.waiting, uid)
	}
}
