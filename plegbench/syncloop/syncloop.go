// Package syncloop is a small kubelet that runs pods on a real CRI runtime through the same machinery as the real one:
// pod sources feed the loop, pod workers sync each pod, PLEG lists every container each second
// and turns changes into events. docs/syncloop-parts.md maps each part to the kubelet's.
package syncloop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/eviction"
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
	server.Reviews
	status.Client
	volumemanager.Client
}

// A Config configures a SyncLoop. Endpoint, NodeName, RootDir, LogDir, Kubelet, Periods, Log and Recorder are required.
type Config struct {
	Endpoint string // CRI socket
	NodeName string
	RootDir  string // like /var/lib/kubelet
	LogDir   string // like /var/log: pods and containers are below
	Kubelet  *kubeletconfig.Config
	Periods  Periods

	Manifests      string // folder or file; empty: none
	PollManifests  bool   // as in config.File
	ManifestURL    string
	ManifestHeader http.Header
	Objects        string // folder with ConfigMaps and Secrets for pods that no API server stands behind
	Client         Client // nil: no API server
	Register       bool   // the node at the API server
	Labels         map[string]string
	StatusFile     string                // of the pods' statuses; empty: none
	Unlimited      bool                  // start any number of new pods at a time, as a kubelet does
	Version        string                // of this kubelet, for the node's status
	Address        string                // the server's, on loopback unless it is Secure; empty: no server
	Kmsg           string                // the kernel's log, for the OOM watcher; empty: none
	ContainerGC    *kuberuntime.GCPolicy // nil: the kubelet's defaults

	Log      logr.Logger
	Recorder record.EventRecorder
	// Notify is called with each event, by several goroutines. It must not block, and may be nil.
	Notify func(Event)
	Trace  *Trace                                                     // nil: none
	Dialer func(ctx context.Context, socket string) (net.Conn, error) // of a runtime in this process; nil: none
}

// An Event is something that happened in a syncLoop, for a timeline.
type Event struct {
	What   EventType
	Detail string
}

// An EventType is the kind of an Event.
type EventType string

// The kinds of events, with their details.
const (
	Skipped       EventType = "skipped"        // the runtime's errors, at each attempt of the loop to go on
	Resumed       EventType = "resumed"        // how long the loop had skipped
	Ready         EventType = "ready"          // the message of the node's condition, which has changed
	NotReady      EventType = "not-ready"      // likewise
	RelistFailed  EventType = "relist-failed"  // the error of a list
	StatusFailed  EventType = "status-failed"  // the error of a Status call
	ContainerDied EventType = "container-died" // the container's id; PLEG has reported its end
)

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
	podConfig                    *config.PodConfig
	sources                      []podSource
	cache                        *pleg.Cache
	pleg                         *pleg.Generic
	evented                      *pleg.Evented // nil unless configured
	workers                      *podworkers.Workers
	runtime                      *kuberuntime.Manager
	backOff                      *flowcontrol.Backoff
	images                       *images.Manager
	prober                       *prober.Manager
	liveness, readiness, startup *prober.Results
	status                       *status.Manager
	volumes                      *volumemanager.Manager
	evictor                      *eviction.Manager
	stats                        *stats.Provider
	server                       *server.Server // nil without an address
	ready                        chan struct{}  // closed when the runtime is ready for the first time
	toDelete                     chan container.ID

	mu   sync.Mutex
	loop LoopState       // without Updates
	seen map[string]bool // sources of which the loop has handled an update
	// By pod and container: why it could not be started the last time (reasonCache upstream).
	notStarted map[types.UID]map[string]*v1.ContainerStateWaiting
}

// New asks the runtime for its version, as a kubelet does first of all, and connects the parts. Nothing runs until Run.
func New(ctx context.Context, cfg Config) (*SyncLoop, error) {
	if cfg.Trace != nil {
		cfg.Log = cfg.Log.WithSink(traceSink{cfg.Log.WithCallDepth(1).GetSink(), cfg.Trace, nil})
	}
	s := &SyncLoop{
		cfg: cfg, log: cfg.Log, recorder: cfg.Recorder, seen: map[string]bool{},
		notStarted: map[types.UID]map[string]*v1.ContainerStateWaiting{}, ready: make(chan struct{}),
		toDelete: make(chan container.ID, containerDeletorBufferLimit), loop: LoopState{Channels: channels()},
	}
	s.cfg.ContainerGC = cmp.Or(cfg.ContainerGC, new(kuberuntime.DefaultGCPolicy()))
	if err := os.MkdirAll(cfg.RootDir, 0o750); err != nil {
		return nil, err
	}
	if err := claimLogs(cfg.LogDir, cfg.NodeName); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(cfg.RootDir, cgroupRootFile), []byte(cfg.Kubelet.CgroupRoot),
		0o640); err != nil {
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
	s.service, err = remote.Dial(cfg.Endpoint, remote.Options{
		Timeout: cfg.Periods.Request, Reconnect: cfg.Periods.Reconnect, Log: cfg.Log,
		Observe: s.metrics.Observe, Trace: cfg.Trace.call, Dialer: cfg.Dialer,
	})
	if err != nil {
		return nil, err
	}
	version, err := s.service.Version(ctx)
	if err != nil {
		err = fmt.Errorf("validate service connection: validate CRI v1 runtime API for endpoint %q: %w", cfg.Endpoint,
			err)
		return nil, errors.Join(err, s.service.Close())
	}
	s.name, s.version = version.GetRuntimeName(), version.GetRuntimeVersion()
	s.cfg.Kubelet.ContainerRuntimeEndpoint = cfg.Endpoint // for /configz
	s.takeCgroupDriver(ctx)
	if err := s.wire(registry, probes); err != nil {
		return nil, errors.Join(err, s.service.Close())
	}
	if cfg.Trace != nil {
		time.AfterFunc(patience, func() { cfg.Trace.late(s.pods.Pods()) })
	}
	return s, nil
}

// takeCgroupDriver asks the runtime for its cgroup driver, as a kubelet does since 1.28. Without an answer the
// configured one is used.
func (s *SyncLoop) takeCgroupDriver(ctx context.Context) {
	config, err := s.service.RuntimeConfig(ctx)
	if err != nil || config.GetLinux() == nil {
		s.log.V(2).Info("CRI implementation should be updated to support RuntimeConfig. " +
			"Falling back to using cgroupDriver from kubelet config.")
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
		s.state.Run, s.node.Run, s.status.Run, s.workers.Run, s.prober.Run, s.pleg.Run, s.runtime.RunGC,
		s.volumes.Run, s.deleteContainers,
		s.images.Run, // with a threshold of 100 it only lists, for the node's status
		s.evict, s.watchOOM, func(ctx context.Context) error { return s.syncLoop(ctx, s) },
	}
	if s.evented != nil {
		parts = append(parts, s.evented.Run)
	}
	if s.server != nil {
		parts = append(parts, s.server.Run)
	}
	for _, source := range s.sources {
		parts = append(parts, func(ctx context.Context) error {
			return source.run(ctx, func(pods []*v1.Pod) {
				s.podConfig.Merge(ctx, config.PodUpdate{Op: config.SET, Source: source.name, Pods: pods})
			})
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
	if err := s.evictor.WatchOOM(ctx, s.cfg.Kmsg); err != nil && ctx.Err() == nil {
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

func (s *SyncLoop) notify(e Event) {
	if s.cfg.Notify != nil {
		s.cfg.Notify(e)
	}
}

// notifyError returns a function that notifies of an error.
func (s *SyncLoop) notifyError(what EventType) func(error) {
	return func(err error) { s.notify(Event{what, err.Error()}) }
}

// A podSource sends all its pods, again and again.
type podSource struct {
	name string
	run  func(ctx context.Context, send func([]*v1.Pod)) error
}

// wire makes the parts and connects them.
func (s *SyncLoop) wire(registry, probes *prometheus.Registry) error {
	p := &s.cfg.Periods
	storage, _, err := stats.Disk(s.cfg.RootDir)
	if err != nil {
		return err
	}
	machine, err := nodestatus.ReadMachine("/", storage)
	if err != nil {
		return err
	}
	s.state = nodestatus.NewRuntimeState(nodestatus.RuntimeConfig{
		Status: s.service.Status, Period: p.RuntimeStatus, Down: p.RuntimeDown, OnReady: func() { close(s.ready) },
		OnFailure: s.notifyError(StatusFailed), Log: s.log,
	})
	s.cache = pleg.NewCache()
	s.pods = pod.NewManager()
	s.workers = podworkers.New(podworkers.Config{
		Syncer: s, Cache: s.cache, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
		ResyncInterval: p.Resync, BackOff: p.BackOff, TransientBackOff: p.Sync,
	})
	s.liveness, s.readiness, s.startup = prober.NewResults(), prober.NewResults(), prober.NewResults()
	s.status = status.New(status.Config{
		Client: s.cfg.Client, File: s.cfg.StatusFile, Pods: s.pods, Log: s.log,
		Interval: p.StatusManager, CouldRun: s.workers.CouldHaveRunningContainers,
	})
	s.wireSources()
	s.wireRuntime(int64(machine.Memory))
	s.wirePLEG()
	s.prober = prober.New(prober.Config{
		Liveness: s.liveness, Readiness: s.readiness, Startup: s.startup,
		Exec: s.runtime.Exec, GRPC: remote.CheckHealth, PodStatus: s.status.PodStatus,
		Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
	})
	if err := s.wireCollectors(); err != nil {
		return err
	}
	if s.cfg.Address != "" {
		auth, authErr := s.cfg.auth()
		if authErr != nil {
			return authErr
		}
		resource := prometheus.NewRegistry()
		resource.MustRegister(metrics.Resource{Summary: s.stats.Summary, Log: s.log})
		s.server, err = server.New(server.Config{
			Address: s.cfg.Address, Auth: auth, Healthy: s.syncLoopHealthCheck, Pods: s.PodsWithStatus,
			Summary: s.stats.SummaryWithNetworks, Metrics: registry, Probes: probes, Resource: resource,
			Configz: configz(s.cfg.Kubelet), Debugging: s.cfg.Kubelet.EnableDebuggingHandlers,
			Profiling: s.cfg.Kubelet.EnableProfilingHandler, Log: s.log,
		})
	}
	s.wireNode(machine)
	return err
}

func (s *SyncLoop) wireSources() {
	c, p := &s.cfg, &s.cfg.Periods
	if c.Manifests != "" {
		f := &config.File{Path: c.Manifests, NodeName: c.NodeName, Interval: p.FileCheck, Log: s.log, Polled: c.PollManifests}
		s.sources = append(s.sources, podSource{pod.FileSource, f.Run})
	}
	if c.ManifestURL != "" {
		h := &config.HTTP{
			URL: c.ManifestURL, Header: c.ManifestHeader, NodeName: c.NodeName, Interval: p.HTTPCheck,
			Log: s.log,
		}
		s.sources = append(s.sources, podSource{pod.HTTPSource, h.Run})
	}
	if c.Client != nil {
		a := &config.APIServer{
			Client: c.Client, NodeName: c.NodeName,
			NodeSynced: func() bool { return s.node.Node() != nil }, Log: s.log,
		}
		s.sources = append(s.sources, podSource{pod.APIServerSource, a.Run})
		s.mirrors = pod.NewMirrors(c.Client, c.NodeName, func() *v1.Node { return s.node.Node() }, s.log)
	}
	var names []string
	for _, source := range s.sources {
		names = append(names, source.name)
	}
	s.podConfig = config.New(config.Config{Log: s.log, Recorder: s.recorder, Sources: names})
}

func (s *SyncLoop) wireRuntime(memory int64) {
	k, p := s.cfg.Kubelet, s.cfg.Periods
	var objects volumemanager.Objects = volumemanager.NewFileObjects(s.cfg.Objects)
	if s.cfg.Objects == "" && s.cfg.Client != nil {
		objects = volumemanager.NewAPIObjects(s.cfg.Client)
	}
	s.volumes = volumemanager.New(volumemanager.Config{
		RootDir: s.cfg.RootDir, Objects: objects, NodeName: s.cfg.NodeName, Recorder: s.recorder, Log: s.log,
		Metrics: s.metrics,
		Pods:    s.pods.Pods, SourcesReady: s.allSourcesReady,
		ShouldPodContainersBeTerminating: s.workers.ShouldPodContainersBeTerminating,
		ShouldPodRuntimeBeRemoved:        s.workers.ShouldPodRuntimeBeRemoved,
	})
	s.backOff = kuberuntime.NewBackOff(p.CrashFirst, p.CrashMost, p.CrashReset)
	result := func(results *prober.Results) kuberuntime.ProbeResult {
		return func(id container.ID) (failed, known bool) {
			r, ok := results.Get(id)
			return r == prober.Failure, ok && r != prober.Unknown
		}
	}
	_, noV2 := os.Stat(cgroupMount + "/cgroup.controllers")
	s.images = images.New(images.Config{
		Service: s.service, Objects: objects, Serialize: k.SerializeImagePulls, MaxParallel: k.MaxParallelImagePulls,
		QPS: float32(k.RegistryPullQPS), Burst: int(k.RegistryBurst), BackOff: p.PullFirst, MaxBackOff: p.PullMost,
		InUse: s.imagesInUse,
		Disk:  func(ctx context.Context) (uint64, uint64, error) { return s.stats.ImageDisk(ctx) },
		High:  int(k.ImageGCHighThresholdPercent), Low: int(k.ImageGCLowThresholdPercent),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration, Period: p.ImageGC,
		NodeName: s.cfg.NodeName, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
	})
	s.runtime = kuberuntime.New(kuberuntime.Config{
		CRI: s.service, EnsureImage: s.images.EnsureImage, Mounts: s.volumes.Mounts, Objects: objects,
		PrepareSafeSubpath: s.volumes.PrepareSafeSubpath,
		Liveness:           result(s.liveness), Startup: result(s.startup), UnlimitedStarts: s.cfg.Unlimited,
		BackOff: s.backOff, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
		NodeName: s.cfg.NodeName, RuntimeName: s.name, RootDir: s.cfg.RootDir, LogDir: s.cfg.LogDir, HostIPs: s.hostIPs,
		ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain,
		MemoryCapacity: memory, CgroupV2: noV2 == nil, CgroupParent: s.cgroupParent,
		GCPolicy: *s.cfg.ContainerGC, GCPeriod: p.ContainerGC, SourcesReady: s.allSourcesReady,
		ShouldPodContentBeRemoved: s.workers.ShouldPodContentBeRemoved,
		ShouldPodRuntimeBeRemoved: s.workers.ShouldPodRuntimeBeRemoved,
	})
}

func (s *SyncLoop) wirePLEG() {
	p, gates := s.cfg.Periods, s.cfg.Kubelet.FeatureGates
	onDemand, set := gates["PLEGOnDemandRelist"]
	generic := pleg.GenericConfig{
		Runtime: s.runtime, Cache: s.cache, Log: s.log, Metrics: s.metrics,
		Period: p.Relist, Threshold: p.RelistThreshold, OnDemand: onDemand || !set,
		OnFailure: s.notifyError(RelistFailed),
	}
	evented := s.cfg.Kubelet.Gate("EventedPLEG")
	if evented {
		generic.Period, generic.Threshold = p.EventedRelist, p.EventedThreshold
	}
	s.pleg = pleg.NewGeneric(generic)
	s.state.AddHealthCheck("PLEG", s.pleg.Healthy)
	if evented {
		s.evented = &pleg.Evented{
			Generic: s.pleg, Stream: s.service, Owner: s.cfg.NodeName,
			FallbackPeriod: p.Relist, FallbackThreshold: p.RelistThreshold,
		}
		s.state.AddHealthCheck("EventedPLEG", s.evented.Healthy)
	}
}

func (s *SyncLoop) wireCollectors() error {
	k, p := s.cfg.Kubelet, s.cfg.Periods
	var err error
	s.stats, err = stats.New(stats.Config{
		CRI: s.service, NodeName: s.cfg.NodeName, Root: "/", RootDir: s.cfg.RootDir,
		LogDir: filepath.Join(s.cfg.LogDir, "pods"),
		Cgroup: func(uid string) string {
			if p, ok := s.pods.PodByUID(types.UID(uid)); ok {
				return cgroupPath(s.cgroupParent(p))
			}
			return ""
		},
	})
	if err != nil {
		return err
	}
	thresholds, err := eviction.ParseThresholdConfig(k.EvictionHard, k.EvictionSoft, k.EvictionSoftGracePeriod,
		k.EvictionMinimumReclaim)
	if err != nil {
		return err
	}
	s.evictor = eviction.New(eviction.Config{
		Summary: s.stats.Summary, Pods: s.activePods, Kill: s.killPodNow,
		CleanedUp:  func(p *v1.Pod) bool { return s.workers.ShouldPodBeFinished(p.UID) },
		Reclaim:    []func(context.Context) error{s.runtime.DeleteAllUnused, s.images.DeleteUnused},
		Thresholds: thresholds, MaxGrace: int64(k.EvictionMaxPodGracePeriod),
		TransitionPeriod: k.EvictionPressureTransitionPeriod.Duration, Period: p.Eviction,
		NodeName: s.cfg.NodeName, Log: s.log, Recorder: s.recorder, Metrics: s.metrics,
	})
	return nil
}

// imagesInUse returns the images of all containers on the node, also of those of other programs, and the sandboxes'
// image, which not all runtimes pin.
func (s *SyncLoop) imagesInUse(ctx context.Context) (map[string]bool, error) {
	sandbox, err := s.service.SandboxImage(ctx)
	if err != nil {
		return nil, err
	}
	list, err := s.service.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{sandbox: true}
	for _, c := range list {
		used[c.GetImage().GetImage()] = true
		used[c.GetImageRef()] = true
		used[c.GetImageId()] = true
	}
	delete(used, "")
	return used, nil
}

func (s *SyncLoop) wireNode(machine nodestatus.Machine) {
	k, p := s.cfg.Kubelet, s.cfg.Periods
	var taints []v1.Taint
	for _, t := range k.RegisterWithTaints {
		taints = append(taints, v1.Taint{Key: t.Key, Value: t.Value, Effect: v1.TaintEffect(t.Effect)})
	}
	var port int32
	if a, ok := s.Addr().(*net.TCPAddr); ok {
		port = int32(a.Port)
	}
	s.node = nodestatus.New(nodestatus.Config{
		Client: s.cfg.Client, NodeName: s.cfg.NodeName, Register: s.cfg.Register, Labels: s.cfg.Labels, Taints: taints,
		Runtime: s.state,
		Version: func(ctx context.Context) (name, version string, err error) {
			v, err := s.service.Version(ctx)
			return v.GetRuntimeName(), v.GetRuntimeVersion(), err
		},
		RuntimeName: s.name, KubeletVersion: s.cfg.Version, Machine: machine, MaxPods: int(k.MaxPods), Port: port,
		Images:    func() []v1.ContainerImage { return largestImages(s.images.Images(), int(k.NodeStatusMaxImages)) },
		Addresses: nodestatus.Addresses(s.cfg.NodeName), Pressure: s.evictor.Conditions,
		OnReadyChange: func(ready bool, message string) {
			s.notify(Event{EventType(ifElse(ready, string(Ready), string(NotReady))), message})
		},
		Frequency: p.NodeStatus, Report: p.NodeReport, LeaseSeconds: k.NodeLeaseDurationSeconds, Log: s.log,
		Recorder: s.recorder,
	})
}

// maxImageNames is how many names of one image the node's status has (pkg/kubelet/nodestatus/setters.go upstream).
const maxImageNames = 5

// largestImages are the most images, the largest first, each with some of its names, digests before tags. Less than
// zero stands for all.
func largestImages(all []*runtimeapi.Image, most int) []v1.ContainerImage {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b *runtimeapi.Image) int {
		return cmp.Compare(b.GetSize(), a.GetSize())
	})
	if most >= 0 {
		all = all[:min(most, len(all))]
	}
	var out []v1.ContainerImage
	for _, i := range all {
		names := slices.Concat(i.GetRepoDigests(), i.GetRepoTags())
		out = append(out, v1.ContainerImage{
			Names:     names[:min(maxImageNames, len(names))],
			SizeBytes: int64(i.GetSize()),
		})
	}
	return out
}
