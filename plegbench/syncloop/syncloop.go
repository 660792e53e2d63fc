// Package syncloop is a small kubelet that runs pods on a real CRI runtime through the same machinery as the real one:
// pod sources feed the loop, pod workers compute what each pod needs and do it, PLEG lists every container each second
// and turns changes into events. docs/syncloop.md maps each part to the kubelet's.
package syncloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/eviction"
	"github.com/kdiag/kdiag/plegbench/syncloop/gc"
	"github.com/kdiag/kdiag/plegbench/syncloop/images"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/nodestatus"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/prober"
	"github.com/kdiag/kdiag/plegbench/syncloop/server"
	"github.com/kdiag/kdiag/plegbench/syncloop/stats"
	"github.com/kdiag/kdiag/plegbench/syncloop/status"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager"
)

// A Client makes the API server calls of all parts; apiserver.Client implements it.
type Client interface {
	config.Client
	nodestatus.Client
	pod.Client
	status.Client
	volumemanager.Client
}

// A Config is what New needs. Endpoint, NodeName, RootDir, LogDir, Kubelet, Periods, Log and Recorder are required.
type Config struct {
	Endpoint string // CRI socket
	NodeName string
	RootDir  string // like /var/lib/kubelet
	LogDir   string // like /var/log: pods and containers are below
	Kubelet  *kubeletconfig.Config
	Periods  Periods

	Manifests      string // folder or file; empty: none
	ManifestURL    string
	ManifestHeader http.Header
	Objects        string // folder with ConfigMaps and Secrets for pods that no API server stands behind
	Client         Client // nil: no API server
	Register       bool   // the node at the API server
	Labels         map[string]string
	StatusFile     string // of the pods' statuses; empty: none
	Version        string // of this kubelet, for the node's status
	Address        string // the server's, on loopback; empty: no server
	Kmsg           string // the kernel's log, for the OOM watcher; empty: none

	Log      logr.Logger
	Recorder record.EventRecorder
	// Notify is called with each event, by several goroutines. It must not block, and may be nil.
	Notify func(Event)
}

// An Event is an event in the life of a syncLoop, for a timeline.
type Event struct {
	At     time.Time
	What   string // skip, resume, ready, not-ready or orphan
	Detail string // the kubelet's text where it has one
}

// A SyncLoop is a small kubelet.
type SyncLoop struct {
	cfg      Config
	log      logr.Logger
	recorder record.EventRecorder
	metrics  *metrics.Metrics
	hostIPs  []string
	name     string // of the runtime, as Version returns it
	version  string

	service                      *remote.Service
	state                        *nodestatus.RuntimeState
	node                         *nodestatus.Manager
	pods                         *pod.Manager
	mirrors                      *pod.Mirrors // nil without an API server
	mux                          *config.Mux
	sources                      []source
	cache                        *pleg.Cache
	pleg                         *pleg.Generic
	evented                      *pleg.Evented // nil unless configured
	workers                      *podworkers.Workers
	runtime                      *kuberuntime.Manager
	backOff                      *flowcontrol.Backoff
	imageGC                      *images.GC
	garbage                      *gc.Collector
	prober                       *prober.Manager
	liveness, readiness, startup *prober.Results
	status                       *status.Manager
	volumes                      *volumemanager.Manager
	objects                      volumemanager.Objects
	evictor                      *eviction.Manager
	stats                        *stats.Provider
	server                       *server.Server // nil without an address
	ready                        chan struct{}  // closed when the runtime is ready for the first time
	loop                         *loop

	mu      sync.Mutex
	seen    map[string]bool                      // sources of which the loop has handled an update
	reasons map[types.UID]map[string]startResult // by pod and container: the last failure to start it
}

// A startResult is why a container could not be started, for the pod's status (reasonCache upstream).
type startResult struct {
	reason  error
	message string
}

// New asks the runtime for its version, as a kubelet does first of all, and connects the parts. Nothing runs until Run.
func New(ctx context.Context, cfg Config) (*SyncLoop, error) {
	s := &SyncLoop{
		cfg: cfg, log: cfg.Log, recorder: cfg.Recorder, seen: map[string]bool{},
		reasons: map[types.UID]map[string]startResult{}, ready: make(chan struct{}),
	}
	if err := os.MkdirAll(cfg.RootDir, 0o750); err != nil {
		return nil, err
	}
	if err := claimLogs(cfg.LogDir, cfg.NodeName); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(cfg.RootDir, cgroupRootFile), []byte(cfg.Kubelet.CgroupRoot), 0o640); err != nil {
		return nil, err
	}
	for _, a := range nodestatus.Addresses(cfg.NodeName) {
		if a.Type == v1.NodeInternalIP {
			s.hostIPs = append(s.hostIPs, a.Address)
		}
	}
	registry, probes := prometheus.NewRegistry(), prometheus.NewRegistry()
	s.metrics = metrics.New(registry, probes)
	s.metrics.NodeName.WithLabelValues(cfg.NodeName).Set(1)
	var err error
	s.service, err = remote.Dial(cfg.Endpoint, remote.Options{Timeout: cfg.Periods.Request, Log: cfg.Log, Observe: s.metrics.Observe})
	if err != nil {
		return nil, err
	}
	version, err := s.service.Version(ctx)
	if err != nil {
		err = fmt.Errorf("validate service connection: validate CRI v1 runtime API for endpoint %q: %w", cfg.Endpoint, err)
		return nil, errors.Join(err, s.service.Close())
	}
	s.name, s.version = version.GetRuntimeName(), version.GetRuntimeVersion()
	s.takeCgroupDriver(ctx)
	if err := s.wire(registry, probes); err != nil {
		return nil, errors.Join(err, s.service.Close())
	}
	return s, nil
}

// takeCgroupDriver asks the runtime for its cgroup driver, as a kubelet does since 1.28. Without an answer the
// configured one is used.
func (s *SyncLoop) takeCgroupDriver(ctx context.Context) {
	config, err := s.service.RuntimeConfig(ctx)
	if err != nil || config.GetLinux() == nil {
		s.log.V(2).Info("CRI implementation should be updated to support RuntimeConfig. Falling back to using cgroupDriver from kubelet config.")
		return
	}
	driver := strings.ToLower(config.GetLinux().GetCgroupDriver().String())
	s.log.Info("Using cgroup driver setting received from the CRI runtime", "cgroupDriver", driver)
	s.cfg.Kubelet.CgroupDriver = driver
}

// Run runs until ctx ends, which is no error, or until a part fails. It leaves the pods running: the next syncLoop with
// the same node name adopts them. Run may be called once.
func (s *SyncLoop) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	parts := []func(context.Context) error{
		s.state.Run, s.node.Run, s.status.Run, s.workers.Run, s.prober.Run, s.pleg.Run, s.garbage.Run, s.garbage.RunDeletor,
		s.imageGC.Run, // with a threshold of 100 it only lists, for the node's status
		s.evict, s.watchOOM, s.loop.run,
	}
	if s.evented != nil {
		parts = append(parts, s.evented.Run)
	}
	if s.server != nil {
		parts = append(parts, s.server.Run)
	}
	for _, source := range s.sources {
		parts = append(parts, func(ctx context.Context) error {
			return source.run(ctx, func(pods []*v1.Pod) { s.mux.Apply(ctx, source.name, pods) })
		})
	}
	for _, run := range parts {
		g.Go(func() error { return run(ctx) })
	}
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
	if s.cfg.Kmsg == "" {
		return nil
	}
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

func (s *SyncLoop) notify(what, detail string) {
	if s.cfg.Notify != nil {
		s.cfg.Notify(Event{At: time.Now(), What: what, Detail: detail})
	}
}
