package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// leavingTaints begin the keys of taints that a node gets before it is removed: cluster-autoscaler's
// (cluster-autoscaler/utils/taints), Karpenter's, since v1 and before (pkg/apis/v1/taints.go), and the one of
// non-graceful shutdowns (k8s.io/api/core/v1).
var leavingTaints = []string{
	"ToBeDeletedBy", "karpenter.sh/disrupted", "karpenter.sh/disruption", v1.TaintNodeOutOfService,
}

const (
	nodeWatch   = 10 * time.Minute // of one watch
	leastWatch  = time.Second      // of one that works
	watchMargin = 30 * time.Second // a connection may be dead
)

// WatchLeaving watches the node object until ctx ends, and calls leaving each time that it gets a taint with which it
// is about to be removed, or is deleted; ready is its condition Ready. It needs the right to watch nodes. Without the
// API server it tries again.
func (p *Publisher) WatchLeaving(ctx context.Context, leaving func(why string, ready bool)) {
	told, before := false, ""
	for delay := retry; ctx.Err() == nil; {
		began := time.Now()
		err := p.watchNode(ctx, func(why string, ready bool) {
			if delay = retry; why != "" && why != before {
				leaving(why, ready)
			}
			before = why
		})
		if err != nil && ctx.Err() == nil && !told && !apierrors.IsResourceExpired(err) {
			p.opts.Log("watching the node object: " + err.Error())
			told = true
		}
		pause := wait.Jitter(leastWatch, retry.Jitter)
		switch {
		case apierrors.IsForbidden(err):
			pause = wait.Jitter(heartbeat, retry.Jitter)
		case err != nil || time.Since(began) < leastWatch:
			pause = delay.Step()
		default:
			told = false
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// watchNode makes one watch, and calls seen with each state of the node: why is empty while it stays.
func (p *Publisher) watchNode(ctx context.Context, seen func(why string, ready bool)) error {
	ctx, cancel := context.WithTimeout(ctx, nodeWatch+watchMargin)
	defer cancel()
	w, err := p.client.WatchNode(ctx, p.opts.NodeName, int64(nodeWatch.Seconds()))
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		node, ok := e.Object.(*v1.Node)
		switch {
		case !ok && e.Type == watch.Error:
			return apierrors.FromObject(e.Object)
		case ok:
			seen(whyLeaving(node, e.Type == watch.Deleted), isReady(node))
		}
	}
	return nil
}

// whyLeaving says why a node is about to be removed; empty where it is not.
func whyLeaving(node *v1.Node, deleted bool) string {
	if deleted || node.DeletionTimestamp != nil {
		return "the node object is deleted"
	}
	for _, t := range node.Spec.Taints {
		if slices.ContainsFunc(leavingTaints, func(key string) bool { return strings.HasPrefix(t.Key, key) }) {
			return "the node has the taint " + t.Key
		}
	}
	return ""
}

func isReady(node *v1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}
