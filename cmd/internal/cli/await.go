package cli

import "context"

// Await runs work in a goroutine of its own and returns its result, or the context's error when the context ends
// first. The work is then left behind: what hangs in the kernel cannot be called back, but it need not hold us.
func Await[T any](ctx context.Context, work func(context.Context) T) (T, error) {
	done := make(chan T, 1)
	go func() { done <- work(ctx) }()
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}
