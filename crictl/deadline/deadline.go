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
	"time"
)

// ErrAbandoned is wrapped by the error of Run and RunGrace when the context ended before f did.
var ErrAbandoned = errors.New("no answer in time")

// A PanicError is returned in place of a panic of f, with the value that f panicked with.
type PanicError struct{ Value any }

func (e *PanicError) Error() string { return fmt.Sprintf("internal error: %v", e.Value) }

// Run calls f in its own goroutine and returns f's result, or, if ctx ends first, the zero value and an error that
// wraps ErrAbandoned and the cause of the context's end. A panic of f is returned as a *PanicError.
//
// An abandoned f still runs, so it must not write to variables that the caller reads without a lock. Whoever repeats
// Run should first make sure that the call before has ended, or stuck goroutines pile up.
func Run[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	return RunGrace(ctx, 0, f)
}

// RunGrace is Run for an f that returns what it has gathered when ctx ends: it waits for grace longer before it
// abandons f.
func RunGrace[T any](ctx context.Context, grace time.Duration, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // buffered: an abandoned f has no receiver
	go func() {
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
		var zero T
		return zero, fmt.Errorf("%w: %w", ErrAbandoned, context.Cause(ctx))
	}
}
