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
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
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
	Dialer   func(ctx context.Context, path string) (net.Conn, error)
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
	registry *prometheus.Registry
	probes   *prometheus.Registry
	hostIPs  []string
	name     string // of the runtime, as Version returns it
	version  string
	machine  nodestatus.Machine

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
	ready                        chan struct{} // closed when the runtime is ready for the first time
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
		registry: prometheus.NewRegistry(), probes: prometheus.NewRegistry(),
	}
	if err := os.MkdirAll(cfg.RootDir, 0o750); err != nil {
		return nil, err
	}
	if err := claimLogs(cfg.LogDir, cfg.NodeName); err != nil {
		return nil, err
	}
	if err := noteCgroupRoot(cfg.RootDir, cfg.Kubelet.CgroupRoot); err != nil {
		return nil, err
	}
	s.metrics = metrics.New(s.registry, s.probes)
	s.metrics.NodeName.WithLabelValues(cfg.NodeName).Set(1)
	var err error
	storage, _, err := stats.Disk(cfg.RootDir)
	if err != nil {
		return nil, err
	}
	if s.machine, err = nodestatus.ReadMachine("/", storage); err != nil {
		return nil, err
	}
	for _, a := range nodestatus.Addresses(cfg.NodeName) {
		if a.Type == v1.NodeInternalIP {
			s.hostIPs = append(s.hostIPs, a.Address)
		}
	}
	s.service, err = remote.Dial(cfg.Endpoint, remote.Options{
		Timeout: cfg.Periods.Request, Log: cfg.Log, Observe: s.metrics.Observe, Dialer: cfg.Dialer,
	})
	if err != nil {
		return nil, err
	}
	version, err := s.service.Version(ctx)
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("validate service connection: validate CRI v1 runtime API for endpoint %q: %w", cfg.Endpoint, err), s.service.Close())
	}
	s.name, s.version = version.GetRuntimeName(), version.GetRuntimeVersion()
	s.takeCgroupDriver(ctx)
	if err := s.wire(); err != nil {
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
	driver := "cgroupfs"
	if config.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		driver = "systemd"
	}
	s.log.Info("Using cgroup driver setting received from the CRI runtime", "cgroupDriver", driver)
	s.cfg.Kubelet.CgroupDriver = driver
}

// A source sends all its pods, again and again.
type source struct {
	name string
	run  func(ctx context.Context, send func([]*v1.Pod)) error
}

// wire makes the parts and connects them.
func (s *SyncLoop) wire() error {
	s.state = nodestatus.NewRuntimeState(nodestatus.RuntimeConfig{
		Status: s.service.Status, Period: s.cfg.Periods.RuntimeStatus, Down: s.cfg.Periods.RuntimeDown,
		OnReady: func() { close(s.ready) }, Log: s.log,
	})
	s.cache = pleg.NewCache()
	s.pods = pod.NewManager()
	s.liveness, s.readiness, s.startup = prober.NewResults(), prober.NewResults(), prober.NewResults()
	s.status = status.New(status.Config{
		Client: s.cfg.Client, File: s.cfg.StatusFile, Pods: s.pods, Log: s.log, Metrics: s.metrics, Interval: s.cfg.Periods.StatusManager,
		CouldRun: func(uid types.UID) bool { return s.workers.CouldHaveRunningContainers(uid) },
	})
	s.wireSources()
	s.wireRuntime()
	s.wirePLEG()
	s.workers = podworkers.New(podworkers.Config{
		Syncer: s, Cache: s.cache, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
		ResyncInterval: s.cfg.Periods.Resync, BackOff: s.cfg.Periods.BackOff, TransientBackOff: s.cfg.Periods.Sync,
	})
	s.prober = prober.New(prober.Config{
		Liveness: s.liveness, Readiness: s.readiness, Startup: s.startup,
		Exec: s.runtime.Exec, GRPC: remote.CheckHealth, PodStatus: s.status.PodStatus,
		Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
	})
	if err := s.wireCollectors(); err != nil {
		return err
	}
	s.wireLoop()
	if err := s.wireServer(); err != nil {
		return err
	}
	s.wireNode()
	return nil
}

func (s *SyncLoop) wireSources() {
	c, p := &s.cfg, &s.cfg.Periods
	if c.Manifests != "" {
		f := &config.File{Path: c.Manifests, NodeName: c.NodeName, Interval: p.FileCheck, Log: s.log}
		s.sources = append(s.sources, source{pod.FileSource, f.Run})
	}
	if c.ManifestURL != "" {
		h := &config.HTTP{URL: c.ManifestURL, Header: c.ManifestHeader, NodeName: c.NodeName, Interval: p.HTTPCheck, Log: s.log}
		s.sources = append(s.sources, source{pod.HTTPSource, h.Run})
	}
	if c.Client != nil {
		a := &config.APIServer{Client: c.Client, NodeName: c.NodeName, NodeSynced: func() bool { return s.node.Node() != nil }, Log: s.log}
		s.sources = append(s.sources, source{pod.APIServerSource, a.Run})
		s.mirrors = pod.NewMirrors(c.Client, c.NodeName, func() *v1.Node { return s.node.Node() }, s.log)
	}
	var names []string
	for _, source := range s.sources {
		names = append(names, source.name)
	}
	s.mux = config.New(config.Config{Log: s.log, Recorder: s.recorder, Sources: names})
}

// allocatable is what the node has for pods, once that is known.
func (s *SyncLoop) allocatable() v1.ResourceList {
	if n := s.node.Node(); n != nil {
		return n.Status.Allocatable
	}
	return nil
}

func (s *SyncLoop) wireRuntime() {
	k, p := s.cfg.Kubelet, s.cfg.Periods
	switch {
	case s.cfg.Objects != "" || s.cfg.Client == nil:
		s.objects = volumemanager.NewFileObjects(s.cfg.Objects)
	default:
		s.objects = volumemanager.NewAPIObjects(s.cfg.Client)
	}
	s.volumes = volumemanager.New(volumemanager.Config{
		RootDir: s.cfg.RootDir, Objects: s.objects, NodeName: s.cfg.NodeName, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
	})
	s.backOff = kuberuntime.NewBackOff(p.CrashFirst, p.CrashMost, p.CrashReset)
	result := func(results *prober.Results) kuberuntime.ProbeResult {
		return func(id container.ID) (failed, known bool) {
			r, ok := results.Get(id)
			return r == prober.Failure, ok && r != prober.Unknown
		}
	}
	s.runtime = kuberuntime.New(kuberuntime.Config{
		CRI: s.service, Volumes: s.volumes, Objects: s.objects, Liveness: result(s.liveness), Startup: result(s.startup),
		Images: images.New(images.Config{
			Service: s.service, Recorder: s.recorder, Log: s.log, Serialize: k.SerializeImagePulls, MaxParallel: &k.MaxParallelImagePulls,
			QPS: float32(k.RegistryPullQPS), Burst: int(k.RegistryBurst), BackOff: p.PullFirst, MaxBackOff: p.PullMost,
		}),
		BackOff: s.backOff, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
		NodeName: s.cfg.NodeName, RuntimeName: s.name, RootDir: s.cfg.RootDir, LogDir: s.cfg.LogDir, HostIPs: s.hostIPs,
		ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, SeccompDefault: k.SeccompDefault,
		MemoryCapacity: int64(s.machine.Memory), CgroupV2: exists("/sys/fs/cgroup/cgroup.controllers"),
		CgroupParent: s.cgroupParent, Allocatable: s.allocatable, SandboxReady: s.status.SetSandboxReady,
		TerminationRequested: func(uid types.UID) bool { return s.workers.IsPodTerminationRequested(uid) },
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
