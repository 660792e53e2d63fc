package config

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// nodeSyncPeriod is WaitForAPIServerSyncPeriod in pkg/kubelet/config/apiserver.go upstream.
const nodeSyncPeriod = time.Second

// A Client lists and watches the pods of all namespaces.
type Client interface {
	ListPods(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error)
	WatchPods(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// APIConfig is what the source at the API server needs.
type APIConfig struct {
	Client   Client
	NodeName string
	// NodeSynced reports whether the node's own object has been read from the API server; pods are watched only then,
	// since admission needs the node's labels and taints. Nil does not wait.
	NodeSynced func() bool
	Log        logr.Logger
}

// APIServer is the source of the pods that are bound to the node.
type APIServer struct{ cfg APIConfig }

// NewAPIServer returns a source that has asked nothing yet.
func NewAPIServer(cfg APIConfig) *APIServer { return &APIServer{cfg} }

// Name is the source's name.
func (a *APIServer) Name() string { return pod.APIServerSource }

// Run lists and watches, and sends all pods at each change. An API server that cannot be reached takes no pod away.
// It ends with ctx, whose error it returns.
func (a *APIServer) Run(ctx context.Context, send func([]*v1.Pod)) error {
	log := a.cfg.Log
	log.Info("Waiting for node sync before watching apiserver pods")
	for a.cfg.NodeSynced != nil && !a.cfg.NodeSynced() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(nodeSyncPeriod):
		}
		log.V(4).Info("node sync has not completed yet")
	}
	log.V(4).Info("node sync completed")
	log.Info("Watching apiserver")

	ours := fields.OneTermEqualSelector("spec.nodeName", a.cfg.NodeName).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = ours
			return a.cfg.Client.ListPods(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = ours
			return a.cfg.Client.WatchPods(ctx, o)
		},
	}
	store := cache.NewUndeltaStore(func(objects []any) {
		all := make([]*v1.Pod, len(objects))
		for i, o := range objects {
			all[i] = o.(*v1.Pod)
		}
		send(all)
	}, cache.MetaNamespaceKeyFunc)
	cache.NewReflector(cache.ToListWatcherWithWatchListSemantics(lw, a.cfg.Client), &v1.Pod{}, store, 0).
		RunWithContext(logr.NewContext(ctx, log))
	return ctx.Err()
}
