package syncloop

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/eviction"
)

// Run works until ctx ends, or until a part cannot go on, whose error it returns; the end of ctx is none. What runs in the
// runtime is left running: the next syncLoop with the same node name takes it over. Run may be called once.
func (s *SyncLoop) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	start := func(run func(context.Context) error) { g.Go(func() error { return run(ctx) }) }
	start(s.updater.Run)
	start(s.node.Run)
	start(s.status.Run)
	start(s.workers.Run)
	start(s.prober.Run)
	start(s.pleg.Run)
	if s.evented != nil {
		start(s.evented.Run)
	}
	start(s.garbage.Run)
	start(s.deletor.Run)
	start(s.afterReady(s.logs.Run))
	start(s.imageGC.Run) // with a threshold of 100 it only lists, for the node's status
	start(s.afterReady(s.evictor.Run))
	if s.cfg.Kmsg != "" {
		start(s.watchOOM)
	}
	if s.server != nil {
		start(s.server.Run)
	}
	for _, source := range s.sources {
		start(func(ctx context.Context) error {
			return source.Run(ctx, func(pods []*v1.Pod) { s.mux.Apply(ctx, source.Name(), pods) })
		})
	}
	start(s.loop.run)
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, s.service.Close())
}

// afterReady holds a part back until the runtime has first said that it is ready.
func (s *SyncLoop) afterReady(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ready:
			return run(ctx)
		}
	}
}

// watchOOM tells of kills by the kernel. A kernel log that cannot be read is said once and costs nothing else.
func (s *SyncLoop) watchOOM(ctx context.Context) error {
	err := eviction.WatchOOM(ctx, eviction.OOMConfig{Kmsg: s.cfg.Kmsg, Recorder: s.recorder, NodeName: s.cfg.NodeName, Log: s.log, Metrics: s.metrics})
	if err != nil && ctx.Err() == nil {
		s.log.Error(err, "Unable to watch the kernel log for OOM kills", "path", s.cfg.Kmsg)
	}
	return nil
}

// Addr is where the server listens, or nil.
func (s *SyncLoop) Addr() net.Addr {
	if s.server == nil {
		return nil
	}
	return s.server.Addr()
}
