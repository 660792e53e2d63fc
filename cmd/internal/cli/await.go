package cli

import (
	"context"
	"fmt"
)

// Await runs work in a goroutine of its own and returns its result, or the context's error when the context ends
// first. The work is then left behind: what hangs in the kernel cannot be called back, but it need not hold us. A panic of
// the work, which reads what nobody has vouched for, is an error.
func Await[T any](ctx context.Context, work func(context.Context) T) (T, error) {
	done := make(chan T, 1)
	fault := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				fault <- fmt.Errorf("a fault of kdiag's own: %v", v)
			}
		}()
		done <- work(ctx)
	}()
	select {
	case v := <-done:
		return v, nil
	case err := <-fault:
		var zero T
		return zero, err
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}
