// Package deadline runs work that may never return.
//
// Reading /proc or a file, asking D-Bus or closing a connection can block in the kernel on a sick node, where no
// signal and no context reaches. Run waits for such work only as long as its context lives, and then abandons it: the
// goroutine stays behind until the kernel lets it go, and its result is discarded.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrAbandoned is wrapped by the error of Run and RunGrace when the context ended before f did.
var ErrAbandoned = errors.New("no answer in time")

// An AbandonedError is that error. It also wraps the cause of the context's end.
type AbandonedError struct {
	Since time.Time // when the work began
	err   error
}

func (e *AbandonedError) Error() string { return e.err.Error() }
func (e *AbandonedError) Unwrap() error { return e.err }

// A PanicError is returned in place of a panic of f, with the value that f panicked with.
type PanicError struct{ Value any }

func (e *PanicError) Error() string { return fmt.Sprintf("internal error: %v", e.Value) }

// A Guard belongs to a service, which does the same work again and again. Work that was abandoned is not started again
// before it has ended, so that a service holds at most one stuck goroutine for each name. The zero Guard is ready.
type Guard struct {
	mu        sync.Mutex
	abandoned map[string]stuck
}

// stuck is abandoned work of one name.
type stuck struct {
	since time.Time // the oldest
	count int
}

var abandoned atomic.Bool

// Abandoned reports whether this process has ever abandoned work, which may keep it from ending.
func Abandoned() bool { return abandoned.Load() }

type guardKey struct{}

// WithGuard returns a context in which Run and RunGrace keep to the guard.
func WithGuard(ctx context.Context, g *Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// outstanding returns since when abandoned work of this name has been under way; false for none. There may be no Guard.
func (g *Guard) outstanding(name string) (since time.Time, ok bool) {
	if g == nil {
		return time.Time{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.abandoned[name]
	return s.since, ok
}

// abandon counts work as abandoned until ended is closed. There may be no Guard.
func (g *Guard) abandon(name string, began time.Time, ended <-chan struct{}) {
	if g == nil {
		return
	}
	g.add(name, began, 1)
	go func() { // it has no thread of its own while it waits
		<-ended
		g.add(name, began, -1)
	}()
}

func (g *Guard) add(name string, began time.Time, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.abandoned == nil {
		g.abandoned = map[string]stuck{}
	}
	s, ok := g.abandoned[name]
	if s.count += n; !ok || began.Before(s.since) {
		s.since = began
	}
	if g.abandoned[name] = s; s.count == 0 {
		delete(g.abandoned, name)
	}
}

// Run calls f in its own goroutine and returns f's result, or, if ctx ends first, the zero value and an error that
// wraps ErrAbandoned and the cause of the context's end. A panic of f is returned as a *PanicError. The name says what
// is done, such as "listing the processes": while work of that name that was abandoned before is still under way, a
// context with a Guard makes Run return an error that wraps ErrAbandoned at once.
//
// An abandoned f still runs, so it must not write to variables that the caller reads without a lock.
func Run[T any](ctx context.Context, name string, f func(context.Context) (T, error)) (T, error) {
	return RunGrace(ctx, name, 0, f)
}

// RunGrace is Run for an f that returns partial results when ctx ends: it waits for grace longer before it
// abandons f.
func RunGrace[T any](
	ctx context.Context, name string, grace time.Duration, f func(context.Context) (T, error),
) (T, error) {
	type result struct {
		value T
		err   error
	}
	var zero T
	guard, _ := ctx.Value(guardKey{}).(*Guard)
	if since, ok := guard.outstanding(name); ok {
		return zero, &AbandonedError{since, fmt.Errorf("%w: %s has been under way for %v", ErrAbandoned, name,
			time.Since(since).Round(time.Second))}
	}
	began := time.Now()
	done := make(chan result, 1) // buffered: an abandoned f has no receiver
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.err = &PanicError{v}
			}
			done <- r
		}()
		r.value, r.err = f(ctx)
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	if grace > 0 {
		select {
		case r := <-done:
			return r.value, r.err
		case <-time.After(grace):
		}
	}
	select {
	case r := <-done: // f and ctx ended together: prefer the result
		return r.value, r.err
	default:
	}
	abandoned.Store(true)
	guard.abandon(name, began, ended)
	return zero, &AbandonedError{began, fmt.Errorf("%w: %w", ErrAbandoned, context.Cause(ctx))}
}
