package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	coalesced    = time.Second // at least, between two snapshots
	listTimeout  = 30 * time.Second
	watchTimeout = 5 * time.Minute // after which the server ends a watch, and the next one goes on
	shortest     = time.Second     // of a watch that is no failure
)

// retry is how long to wait after failures.
var retry = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: listTimeout}

// Watch keeps a snapshot of Read up to date, and calls changed with a new one at most once a second. While the API
// server is away, what was read last stays, with a problem. Watch returns when ctx has ended.
func (s *Snapshot) Watch(ctx context.Context, changed func(*Snapshot)) {
	r := s.reading
	var loops sync.WaitGroup
	loops.Go(func() { r.follow(ctx) })
	for _, p := range r.parts() {
		loops.Go(func() {
			for sleep(ctx, p.every) {
				_ = r.again(ctx, p)
			}
		})
	}
	for sleep(ctx, coalesced) {
		r.mu.Lock()
		fresh := r.fresh
		r.mu.Unlock()
		if fresh {
			next := r.snapshot()
			next.Cost = s.Cost
			changed(next)
		}
	}
	loops.Wait()
}

// sleep reports whether ctx still goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// again refreshes a part, within a time.
func (r *reading) again(ctx context.Context, p part) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return r.refresh(ctx, p)
}

// follow watches the nodes. After a failure it lists them, and watches from there.
func (r *reading) follow(ctx context.Context) {
	for delay := retry; ctx.Err() == nil; {
		useful, err := r.watchNodes(ctx)
		if useful {
			delay = retry
		}
		if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // to list is all that these take
			r.report("watch", fmt.Errorf("watching nodes: %w", err))
		}
		for err != nil && sleep(ctx, delay.Step()) {
			err = r.again(ctx, r.nodesPart())
		}
	}
}

// watchNodes watches until the server ends that, which is no error, and reports whether there were events.
func (r *reading) watchNodes(ctx context.Context) (useful bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout+listTimeout) // a connection may be dead
	defer cancel()
	start := time.Now()
	r.mu.Lock()
	opts := metav1.ListOptions{
		Watch: true, AllowWatchBookmarks: true, LabelSelector: r.opts.Selector, ResourceVersion: r.version,
		TimeoutSeconds: new(int64(watchTimeout.Seconds())),
	}
	r.mu.Unlock()
	w, err := r.cluster.core.Get().Resource("nodes").VersionedParams(&opts, r.cluster.params).Watch(ctx)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	r.report("watch", nil)
	for e := range w.ResultChan() {
		n, ok := e.Object.(*v1.Node)
		if !ok {
			return useful, apierrors.FromObject(e.Object)
		}
		useful = true
		r.apply(e.Type, n)
	}
	if time.Since(start) < shortest {
		return useful, errors.New("the API server ended the watch at once")
	}
	return useful, ctx.Err()
}

// apply takes over one event of the watch.
func (r *reading) apply(kind watch.EventType, n *v1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = n.ResourceVersion
	switch kind {
	case watch.Bookmark:
		return
	case watch.Deleted:
		delete(r.nodes, n.Name)
	case watch.Added, watch.Modified:
		r.nodes[n.Name] = nodeOf(n)
	}
	r.fresh = true
}
