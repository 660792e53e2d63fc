package fake

import (
	"context"
	"fmt"
	"sync"
)

// Listen makes the scenario's socket at path. Depending on the SocketMode it serves s there, makes no socket, makes
// one that refuses connections, or one that accepts them and never answers. A stale socket file at path is replaced;
// a file of another kind, or a socket that accepts connections, is an error.
//
// The socket exists when Listen returns, until stop is called or ctx ends; then it is removed and s is stopped. stop
// waits for that, and may be called more than once.
func Listen(ctx context.Context, s *Server, path string) (stop func(), err error) {
	if err := MakeWay(ctx, path); err != nil {
		return nil, err
	}
	if s.scenario.Socket == SocketMissing {
		return stopOnce(ctx, s.Stop), nil
	}
	lis, err := Bind(path, 0)
	if err != nil {
		return nil, err
	}
	unlink := lis.Unlink
	switch s.scenario.Socket {
	case SocketRefuse:
		if err := lis.Close(); err != nil {
			return nil, fmt.Errorf("closing the listener on %s: %w", path, err)
		}
		return stopOnce(ctx, func() { unlink(); s.Stop() }), nil
	case SocketSilent:
		return stopOnce(ctx, func() { unlink(); _ = lis.Close(); s.Stop() }), nil
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(lis) // ends with stop; a listener that breaks before looks like a dead daemon, as it should
	}()
	return stopOnce(ctx, func() { unlink(); s.Stop(); <-served }), nil
}

// stopOnce makes end run once, when the result is called or ctx ends, and makes all callers wait for it.
func stopOnce(ctx context.Context, end func()) func() {
	once := sync.OnceFunc(end)
	release := context.AfterFunc(ctx, once)
	return func() {
		release()
		once()
	}
}
