package syncloop

import (
	"cmp"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/eviction"
	"github.com/kdiag/kdiag/plegbench/syncloop/gc"
	"github.com/kdiag/kdiag/plegbench/syncloop/images"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
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

// A source sends all its pods, again and again.
type source struct {
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
		Status: s.service.Status, Period: p.RuntimeStatus, Down: p.RuntimeDown, OnReady: func() { close(s.ready) }, Log: s.log,
	})
	s.cache = pleg.NewCache()
	s.pods = pod.NewManager()
	s.liveness, s.readiness, s.startup = prober.NewResults(), prober.NewResults(), prober.NewResults()
	s.status = status.New(status.Config{
		Client: s.cfg.Client, File: s.cfg.StatusFile, Pods: s.pods, Log: s.log, Metrics: s.metrics, Interval: p.StatusManager,
		CouldRun: func(uid types.UID) bool { return s.workers.CouldHaveRunningContainers(uid) },
	})
	s.wireSources()
	s.wireRuntime(int64(machine.Memory))
	s.wirePLEG()
	s.workers = podworkers.New(podworkers.Config{
		Syncer: s, Cache: s.cache, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
		ResyncInterval: p.Resync, BackOff: p.BackOff, TransientBackOff: p.Sync,
	})
	s.prober = prober.New(prober.Config{
		Liveness: s.liveness, Readiness: s.readiness, Startup: s.startup,
		Exec: s.runtime.Exec, GRPC: remote.CheckHealth, PodStatus: s.status.PodStatus,
		Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
	})
	if err := s.wireCollectors(); err != nil {
		return err
	}
	s.loop = &loop{
		handler: s, log: s.log, periods: s.cfg.Periods, updates: s.mux.Updates(), events: s.pleg.Events(),
		livenessCh: s.liveness.Updates(), readinessCh: s.readiness.Updates(), startupCh: s.startup.Updates(),
	}
	if s.cfg.Address != "" {
		s.server, err = server.New(server.Config{
			Address: s.cfg.Address, Healthy: s.loop.healthy, Pods: s.PodsWithStatus,
			RunningPods: func(ctx context.Context) ([]*container.Pod, error) { return s.runtime.GetPods(ctx, false) },
			Summary:     s.stats.Summary, Metrics: registry, Probes: probes,
			Configz: s.cfg.Kubelet, Debugging: s.cfg.Kubelet.EnableDebuggingHandlers, Profiling: s.cfg.Kubelet.EnableProfilingHandler, Log: s.log,
		})
	}
	s.wireNode(machine)
	return err
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

func (s *SyncLoop) wireRuntime(memory int64) {
	k, p := s.cfg.Kubelet, s.cfg.Periods
	s.objects = volumemanager.NewFileObjects(s.cfg.Objects)
	if s.cfg.Objects == "" && s.cfg.Client != nil {
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
	_, noV2 := os.Stat(cgroupMount + "/cgroup.controllers")
	s.runtime = kuberuntime.New(kuberuntime.Config{
		CRI: s.service, Volumes: s.volumes, Objects: s.objects, Liveness: result(s.liveness), Startup: result(s.startup),
		Images: images.New(images.Config{
			Service: s.service, Recorder: s.recorder, Log: s.log, Serialize: k.SerializeImagePulls, MaxParallel: &k.MaxParallelImagePulls,
			QPS: float32(k.RegistryPullQPS), Burst: int(k.RegistryBurst), BackOff: p.PullFirst, MaxBackOff: p.PullMost,
		}),
		BackOff: s.backOff, Recorder: s.recorder, Log: s.log, Metrics: s.metrics,
		NodeName: s.cfg.NodeName, RuntimeName: s.name, RootDir: s.cfg.RootDir, LogDir: s.cfg.LogDir, HostIPs: s.hostIPs,
		ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, SeccompDefault: k.SeccompDefault,
		MemoryCapacity: memory, CgroupV2: noV2 == nil, CgroupParent: s.cgroupParent,
		Allocatable: func() v1.ResourceList { // once it is known
			if n := s.node.Node(); n != nil {
				return n.Status.Allocatable
			}
			return nil
		},
		SandboxReady:         s.status.SetSandboxReady,
		TerminationRequested: func(uid types.UID) bool { return s.workers.IsPodTerminationRequested(uid) },
	})
}

func (s *SyncLoop) wirePLEG() {
	p, gates := s.cfg.Periods, s.cfg.Kubelet.FeatureGates
	onDemand, set := gates["PLEGOnDemandRelist"]
	generic := pleg.GenericConfig{
		Runtime: s.runtime, Cache: s.cache, Log: s.log, Metrics: s.metrics,
		Period: p.Relist, Threshold: p.RelistThreshold, OnDemand: onDemand || !set,
	}
	evented := s.cfg.Kubelet.Gate("EventedPLEG")
	if evented {
		generic.Period, generic.Threshold = p.EventedRelist, p.EventedThreshold
	}
	s.pleg = pleg.NewGeneric(generic)
	s.state.AddHealthCheck("PLEG", s.pleg.Healthy)
	if evented {
		s.evented = pleg.NewEvented(pleg.EventedConfig{
			Generic: s.pleg, Stream: s.service, Log: s.log, Owner: s.cfg.NodeName,
			FallbackPeriod: p.Relist, FallbackThreshold: p.RelistThreshold,
		})
		s.state.AddHealthCheck("EventedPLEG", s.evented.Healthy)
	}
}

func (s *SyncLoop) wireCollectors() error {
	k, p := s.cfg.Kubelet, s.cfg.Periods
	s.garbage = gc.New(gc.Config{
		CRI: s.service, Pods: s.workers, Keep: 1, SourcesReady: s.sourcesReady, NodeName: s.cfg.NodeName, LogDir: s.cfg.LogDir,
		Period: p.ContainerGC, Log: s.log, Recorder: s.recorder, Metrics: s.metrics,
	})
	var err error
	s.stats, err = stats.New(stats.Config{
		CRI: s.service, NodeName: s.cfg.NodeName, Root: "/", RootDir: s.cfg.RootDir, LogDir: filepath.Join(s.cfg.LogDir, "pods"),
	})
	if err != nil {
		return err
	}
	s.imageGC, err = images.NewGC(images.GCConfig{
		Service: s.service, InUse: s.imagesInUse, Disk: s.stats.ImageDisk,
		High: int(k.ImageGCHighThresholdPercent), Low: int(k.ImageGCLowThresholdPercent),
		MinAge: k.ImageMinimumGCAge.Duration, Period: p.ImageGC,
		NodeName: s.cfg.NodeName, Log: s.log, Recorder: s.recorder, Metrics: s.metrics,
	})
	if err != nil {
		return err
	}
	thresholds, err := eviction.Parse(eviction.Statements{
		Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGrace: k.EvictionSoftGracePeriod, MinReclaim: k.EvictionMinimumReclaim,
	})
	if err != nil {
		return err
	}
	s.evictor = eviction.New(eviction.Config{
		Summary: s.stats.Summary, Pods: s.activePods, Kill: s.killPodNow,
		CleanedUp:        func(p *v1.Pod) bool { return s.workers.ShouldPodBeFinished(p.UID) },
		Reclaim:          eviction.Reclaim{Containers: s.garbage.DeleteAllUnused, Images: s.imageGC.DeleteUnused},
		DedicatedImageFs: s.stats.DedicatedImageFs,
		Thresholds:       thresholds, TransitionPeriod: k.EvictionPressureTransitionPeriod.Duration,
		MaxPodGrace: int64(k.EvictionMaxPodGracePeriod), Period: p.Eviction,
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
		Client: s.cfg.Client, NodeName: s.cfg.NodeName, Register: s.cfg.Register, Labels: s.cfg.Labels, Taints: taints, Runtime: s.state,
		Version: func(ctx context.Context) (name, version string, err error) {
			v, err := s.service.Version(ctx)
			return v.GetRuntimeName(), v.GetRuntimeVersion(), err
		},
		RuntimeName: s.name, KubeletVersion: s.cfg.Version, Machine: machine, MaxPods: int(k.MaxPods), Port: port,
		Images:    func() []v1.ContainerImage { return largestImages(s.imageGC.Images(), int(k.NodeStatusMaxImages)) },
		Addresses: nodestatus.Addresses(s.cfg.NodeName), Pressure: s.evictor.Conditions,
		OnReadyChange: func(ready bool, message string) { s.notify(word(ready, "ready", "not-ready"), message) },
		Frequency:     p.NodeStatus, Report: p.NodeReport, LeaseSeconds: k.NodeLeaseDurationSeconds, Log: s.log, Recorder: s.recorder,
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
		out = append(out, v1.ContainerImage{Names: names[:min(maxImageNames, len(names))], SizeBytes: int64(i.GetSize())})
	}
	return out
}
