package fake

import (
	"context"
	"sync"
)

// Listen makes a socket at path, as Bind does, and serves s there, or refuses connections, as the scenario's SocketMode
// says. The socket exists until stop is called or ctx ends; then it is removed and s is stopped. stop waits for that,
// and may be called more than once.
func Listen(ctx context.Context, s *Server, path string) (stop func(), err error) {
	lis, err := s.Listen.Bind(ctx, path)
	if err != nil {
		return nil, err
	}
	var serving sync.WaitGroup
	if s.scenario.Socket == SocketRefuse {
		_ = lis.Close()
	} else {
		serving.Go(func() { _ = s.Serve(lis) }) // a listener that breaks looks like a dead daemon, as it should
	}
	end := sync.OnceFunc(func() {
		lis.Unlink()
		s.Stop()
		serving.Wait()
	})
	release := context.AfterFunc(ctx, end)
	return func() { release(); end() }, nil
}
