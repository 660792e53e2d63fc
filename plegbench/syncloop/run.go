package syncloop

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/eviction"
)

// Run runs until ctx ends, which is no error, or until a part fails. It leaves the pods running: the next syncLoop with
// the same node name adopts them. Run may be called once.
func (s *SyncLoop) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	start := func(run func(context.Context) error) { g.Go(func() error { return run(ctx) }) }
	start(s.state.Run)
	start(s.node.Run)
	start(s.status.Run)
	start(s.workers.Run)
	start(s.prober.Run)
	start(s.pleg.Run)
	if s.evented != nil {
		start(s.evented.Run)
	}
	start(s.garbage.Run)
	start(s.garbage.RunDeletor)
	start(s.imageGC.Run) // with a threshold of 100 it only lists, for the node's status
	start(s.evict)
	if s.cfg.Kmsg != "" {
		start(s.watchOOM)
	}
	if s.server != nil {
		start(s.server.Run)
	}
	for _, source := range s.sources {
		start(func(ctx context.Context) error {
			return source.run(ctx, func(pods []*v1.Pod) { s.mux.Apply(ctx, source.name, pods) })
		})
	}
	start(s.loop.run)
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, s.service.Close())
}

// evict runs the eviction manager once the runtime is ready.
func (s *SyncLoop) evict(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ready:
		return s.evictor.Run(ctx)
	}
}

// watchOOM reports kills by the kernel. It is not fatal if the kernel's log cannot be read.
func (s *SyncLoop) watchOOM(ctx context.Context) error {
	err := eviction.WatchOOM(ctx, eviction.OOMConfig{Kmsg: s.cfg.Kmsg, Recorder: s.recorder, NodeName: s.cfg.NodeName, Log: s.log, Metrics: s.metrics})
	if err != nil && ctx.Err() == nil {
		s.log.Error(err, "Unable to watch the kernel log for OOM kills", "path", s.cfg.Kmsg)
	}
	return nil
}

// Addr is the address that the server listens on, or nil.
func (s *SyncLoop) Addr() net.Addr {
	if s.server == nil {
		return nil
	}
	return s.server.Addr()
}
