package fake

import (
	"context"
	"fmt"
	"sync"
)

// Listen makes the scenario's socket at path, as Bind does. Depending on the SocketMode it serves s there, makes no
// socket, makes one that refuses connections, or one that accepts them and never answers.
//
// The socket exists when Listen returns, until stop is called or ctx ends; then it is removed and s is stopped. stop
// waits for that, and may be called more than once.
func Listen(ctx context.Context, s *Server, path string) (stop func(), err error) {
	mode := s.scenario.Socket
	if mode == SocketMissing {
		if err := clearPath(ctx, path); err != nil {
			return nil, fmt.Errorf("listening on %s: %w", path, err)
		}
		return s.Stop, nil
	}
	lis, err := s.Listen.Bind(ctx, path)
	if err != nil {
		return nil, err
	}
	served := make(chan struct{})
	end := sync.OnceFunc(func() {
		lis.Unlink()
		_ = lis.Close()
		s.Stop()
		<-served
	})
	go func() {
		defer close(served)
		if mode == SocketListen {
			_ = s.Serve(lis) // ends with Stop; a listener that breaks before looks like a dead daemon, as it should
		}
	}()
	if mode == SocketRefuse {
		_ = lis.Close()
	}
	release := context.AfterFunc(ctx, end)
	return func() { release(); end() }, nil
}
