package kuberuntime

import (
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A Backoff holds how long each container that ended must wait before it is started again: the first restart is at once,
// the next ones wait twice as long each time.
type Backoff struct {
	first, most, reset time.Duration

	mu      sync.Mutex
	entries map[string]backoffEntry
}

type backoffEntry struct {
	wait    time.Duration
	decided time.Time
}

// NewBackoff makes a Backoff that waits first after the second end and never longer than most: 10 s and 5 minutes in the
// kubelet. A container that ended later than reset after the last decision to restart it begins anew: 10 minutes.
func NewBackoff(first, most, reset time.Duration) *Backoff {
	return &Backoff{first: first, most: most, reset: reset, entries: map[string]backoffEntry{}}
}

// Wait returns how long the container with that key waits after an end at that time, and whether this is not over.
func (b *Backoff) Wait(key string, ended time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	if !ok || b.expired(e, ended) {
		return 0, false
	}
	return e.wait, time.Since(ended) < e.wait
}

// Next notes the decision to start the container again after an end at that time.
func (b *Backoff) Next(key string, ended time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[key]
	wait := b.first
	if ok && !b.expired(e, ended) {
		wait = min(2*e.wait, b.most)
	}
	b.entries[key] = backoffEntry{wait: wait, decided: time.Now()}
}

// GC forgets containers that no decision was made on for long.
func (b *Backoff) GC() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, e := range b.entries {
		if b.expired(e, time.Now()) {
			delete(b.entries, key)
		}
	}
}

func (b *Backoff) expired(e backoffEntry, at time.Time) bool { return at.Sub(e.decided) > b.reset }

// backoffKey tells containers apart. With another image or other resources a container starts over.
func backoffKey(pod *v1.Pod, c *v1.Container) string {
	h := fnv.New64a()
	parts := []string{pod.Name, pod.Namespace, string(pod.UID), c.Name, c.Image, c.Resources.String()}
	_, _ = h.Write([]byte(strings.Join(parts, "/"))) // a hash does not fail
	return strconv.FormatUint(h.Sum64(), 16)
}
