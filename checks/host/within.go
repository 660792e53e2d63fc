package host

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// How long a look waits for what may hang.
const (
	// gatherPatience is for the details of what was found, such as the cgroup of a process.
	gatherPatience = 2 * time.Second
	// lastMoment is for a look to hand in what it has when its time is up.
	lastMoment = 50 * time.Millisecond
)

// A position is what a look is reading; it may be left behind there.
type position struct {
	mu   sync.Mutex
	name string
}

func (p *position) enter(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = name
}

func (p *position) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.name, "its start")
}

// within runs a look in a goroutine of its own and waits for it no longer than ctx lives. One that does not end is left
// behind, and what it brings later goes nowhere: /proc/PID/cgroup and /proc/cgroups wait for the lock of all control
// groups, and the fdinfo of an inotify instance for the lock of its marks.
func within[T any](ctx context.Context, look func(at *position) (T, error)) (T, error) {
	return withinAt(ctx, &position{}, look)
}

// withinAt is within for looks that share their position.
func withinAt[T any](ctx context.Context, at *position, look func(at *position) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { // nobody else can catch it here, and no file of a node's is worth the end of all other looks
			if v := recover(); v != nil {
				done <- outcome{err: fmt.Errorf("kdiag's own fault, reading %s: %v", at, v)}
			}
		}()
		value, err := look(at)
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastMoment)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.value, o.err
	case <-timer.C:
		var nothing T
		return nothing, fmt.Errorf("reading %s does not end: %w", at, ctx.Err())
	}
}

// gather asks about one key after the other in a goroutine that may be left behind, and returns what it has brought when
// gatherPatience is over. The error says what it was at.
func gather[K comparable, V any](ctx context.Context, keys []K, ask func(at *position, key K) V) (map[K]V, error) {
	var mu sync.Mutex
	brought := make(map[K]V, len(keys))
	ctx, cancel := context.WithTimeout(ctx, gatherPatience)
	defer cancel()
	_, err := within(ctx, func(at *position) (struct{}, error) {
		for _, key := range keys {
			value := ask(at, key)
			mu.Lock()
			brought[key] = value
			mu.Unlock()
		}
		return struct{}{}, nil
	})
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(brought), err
}
