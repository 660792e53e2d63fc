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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/eviction"
	"github.com/kdiag/kdiag/plegbench/syncloop/gc"
	"github.com/kdiag/kdiag/plegbench/syncloop/images"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/logs"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/nodestatus"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/prober"
	"github.com/kdiag/kdiag/plegbench/syncloop/runoptions"
	"github.com/kdiag/kdiag/plegbench/syncloop/server"
	"github.com/kdiag/kdiag/plegbench/syncloop/stats"
	"github.com/kdiag/kdiag/plegbench/syncloop/status"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager"
)

// A Client is what the parts ask an API server for; an apiserver.Client is one.
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

	Log          logr.Logger
	SetVerbosity func(level string) error // of the log, for the server; may be nil
	Recorder     record.EventRecorder
	// Notify is told what happens, from several goroutines; nil for nobody. It must not block.
	Notify func(Event)
}

// An Event is a turn in the life of a syncLoop, for a timeline.
type Event struct {
	At     time.Time
	What   string // skip, resume, ready, not-ready, relist-failed, status-failed, orphan
	Detail string // the kubelet's own words where it has some
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
	name     string // of the runtime, as Version says it
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
	evented                      *pleg.Evented // nil unless asked for
	workers                      *podworkers.Workers
	runtime                      *kuberuntime.Manager
	backOff                      *kuberuntime.Backoff
	images                       *images.Manager
	imageGC                      *images.GC
	garbage                      *gc.Collector
	deletor                      *gc.Deletor
	logs                         *logs.Manager
	prober                       *prober.Manager
	liveness, readiness, startup *prober.Results
	status                       *status.Manager
	volumes                      *volumemanager.Manager
	objects                      volumemanager.Objects
	options                      *runoptions.Options
	evictor                      *eviction.Manager
	stats                        *stats.Provider
	server                       *server.Server // nil without an address
	updater                      *nodestatus.Updater
	ready                        chan struct{} // closed when the runtime has first said that it is ready
	loop                         *loop
	reasons                      reasons

	mu   sync.Mutex
	seen map[string]bool // sources of which the loop has handled an update
}

// New asks the runtime for its version, as a kubelet does before anything else, and wires the parts. Nothing runs until Run.
func New(ctx context.Context, cfg Config) (*SyncLoop, error) {
	s := &SyncLoop{
		cfg: cfg, log: cfg.Log, recorder: cfg.Recorder, seen: map[string]bool{}, ready: make(chan struct{}),
		registry: prometheus.NewRegistry(), probes: prometheus.NewRegistry(),
	}
	if err := os.MkdirAll(cfg.RootDir, 0o750); err != nil {
		return nil, err
	}
	if err := claimLogs(cfg.LogDir, cfg.NodeName); err != nil {
		return nil, err
	}
	if err := noteCgroups(cgroupMount, cfg.RootDir, cfg.Kubelet.CgroupRoot); err != nil {
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
	for _, a := range nodestatus.Addresses(cfg.NodeName, nil) {
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

// takeCgroupDriver asks the runtime for its cgroup driver, as a kubelet does since 1.28. One that does not know the call leaves the
// configured one.
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

// A source hands over all its pods, again and again.
type source interface {
	Name() string
	Run(ctx context.Context, send func([]*v1.Pod)) error
}

// wire makes the parts and gives them to each other. None of them knows another but through an interface of its own.
func (s *SyncLoop) wire() error {
	s.state = nodestatus.NewRuntimeState(s.cfg.Periods.RuntimeDown)
	s.cache = pleg.NewCache()
	s.pods = pod.NewManager()
	s.liveness, s.readiness, s.startup = prober.NewResults(), prober.NewResults(), prober.NewResults()
	s.status = status.New(status.Config{
		Client: s.cfg.Client, File: s.cfg.StatusFile, Pods: s.pods, Deletion: workersLater{s},
		Log: s.log, Metrics: s.metrics, Interval: s.cfg.Periods.StatusManager,
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

// workersLater hands questions on to the workers, which are made after those who ask.
type workersLater struct{ *SyncLoop }

func (w workersLater) CouldHaveRunningContainers(uid types.UID) bool {
	return w.workers.CouldHaveRunningContainers(uid)
}

func (s *SyncLoop) wireSources() {
	references := s.cfg.Objects != ""
	var names []string
	if s.cfg.Manifests != "" {
		names = append(names, pod.FileSource)
		s.sources = append(s.sources, config.NewFile(config.FileConfig{
			Path: s.cfg.Manifests, NodeName: s.cfg.NodeName, Interval: s.cfg.Periods.FileCheck, AllowReferences: references, Log: s.log,
		}))
	}
	if s.cfg.ManifestURL != "" {
		names = append(names, pod.HTTPSource)
		s.sources = append(s.sources, config.NewHTTP(config.HTTPConfig{
			URL: s.cfg.ManifestURL, Header: s.cfg.ManifestHeader, NodeName: s.cfg.NodeName,
			Interval: s.cfg.Periods.HTTPCheck, AllowReferences: references, Log: s.log,
		}))
	}
	if s.cfg.Client != nil {
		names = append(names, pod.APIServerSource)
		s.sources = append(s.sources, config.NewAPIServer(config.APIConfig{
			Client: s.cfg.Client, NodeName: s.cfg.NodeName, NodeSynced: func() bool { return s.node.Node() != nil }, Log: s.log,
		}))
		s.mirrors = pod.NewMirrors(s.cfg.Client, s.cfg.NodeName, s.registeredNode, s.log)
	}
	s.mux = config.New(config.Config{Log: s.log, Recorder: s.recorder, Sources: names})
}

var errNoNode = errors.New("the node's status has not been computed yet")

func (s *SyncLoop) registeredNode() (*v1.Node, error) {
	if n := s.node.Node(); n != nil {
		return n, nil
	}
	return nil, errNoNode
}

// allocatable is what the node has for pods, as far as it is known.
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
		RootDir: s.cfg.RootDir, Objects: s.objects, Allocatable: s.allocatable, Refresh: p.Resync,
		NodeName: s.cfg.NodeName, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
	})
	s.options = runoptions.New(runoptions.Config{
		NodeName: s.cfg.NodeName, Volumes: s.volumes, Objects: s.objects, RootDir: s.cfg.RootDir, HostIPs: func() []string { return s.hostIPs },
		Allocatable: s.allocatable, ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, ResolvConf: k.ResolverConfig,
		SystemdCgroups: k.CgroupDriver == "systemd", CgroupRoot: k.CgroupRoot, SELinux: exists("/sys/fs/selinux/enforce"), Recorder: s.recorder, Log: s.log,
	})
	s.images = images.New(images.Config{
		Service: s.service, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
		Serialize: k.SerializeImagePulls, MaxParallel: &k.MaxParallelImagePulls, QPS: float32(k.RegistryPullQPS), Burst: int(k.RegistryBurst),
		BackOff: p.PullFirst, MaxBackOff: p.PullMost,
	})
	s.backOff = kuberuntime.NewBackoff(p.CrashFirst, p.CrashMost, p.CrashReset)
	verdict := func(results *prober.Results) kuberuntime.Verdict {
		return func(id container.ID) (failed, known bool) {
			r, ok := results.Get(id)
			return r == prober.Failure, ok && r != prober.Unknown
		}
	}
	s.runtime = kuberuntime.New(kuberuntime.Config{
		CRI: s.service, Images: s.images, Options: s.options, Liveness: verdict(s.liveness), Startup: verdict(s.startup),
		Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
		NodeName: s.cfg.NodeName, RuntimeName: s.name, RootDir: s.cfg.RootDir, LogDir: s.cfg.LogDir,
		MemoryCapacity: int64(s.machine.Memory), CgroupV2: exists("/sys/fs/cgroup/cgroup.controllers"), SeccompDefault: k.SeccompDefault,
		SandboxReady:         s.status.SetSandboxReady,
		TerminationRequested: func(uid types.UID) bool { return s.workers.IsPodTerminationRequested(uid) },
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
