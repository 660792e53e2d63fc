package syncloop

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/eviction"
	"github.com/kdiag/kdiag/plegbench/syncloop/gc"
	"github.com/kdiag/kdiag/plegbench/syncloop/images"
	"github.com/kdiag/kdiag/plegbench/syncloop/nodestatus"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/prober"
	"github.com/kdiag/kdiag/plegbench/syncloop/server"
	"github.com/kdiag/kdiag/plegbench/syncloop/stats"
	"github.com/kdiag/kdiag/plegbench/syncloop/status"
)

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

// activePods are the desired pods that may have something running.
func (s *SyncLoop) activePods() []*v1.Pod {
	var out []*v1.Pod
	for _, p := range s.pods.Pods() {
		api, known := s.status.PodStatus(p.UID)
		ended := pod.IsTerminal(p.Status.Phase) || known && pod.IsTerminal(api.Phase)
		if !s.workers.IsPodKnownTerminated(p.UID) && (!ended || s.workers.CouldHaveRunningContainers(p.UID)) {
			out = append(out, p)
		}
	}
	return out
}

func (s *SyncLoop) wireNode() {
	k, p := s.cfg.Kubelet, s.cfg.Periods
	var taints []v1.Taint
	for _, t := range k.RegisterWithTaints {
		taints = append(taints, v1.Taint{Key: t.Key, Value: t.Value, Effect: v1.TaintEffect(t.Effect)})
	}
	s.node = nodestatus.New(nodestatus.Config{
		Client: s.cfg.Client, NodeName: s.cfg.NodeName, Register: s.cfg.Register, Labels: s.cfg.Labels, Taints: taints,
		Runtime: s.state,
		Version: func(ctx context.Context) (name, version string, err error) {
			v, err := s.service.Version(ctx)
			return v.GetRuntimeName(), v.GetRuntimeVersion(), err
		},
		RuntimeName: s.name, KubeletVersion: s.cfg.Version, Machine: s.machine, MaxPods: int(k.MaxPods),
		Images: s.nodeImages, Port: s.port(),
		Addresses: nodestatus.Addresses(s.cfg.NodeName), Pressure: s.evictor.Conditions, OnReadyChange: s.readyChanged,
		Frequency: p.NodeStatus, Report: p.NodeReport, LeaseSeconds: k.NodeLeaseDurationSeconds, Log: s.log, Recorder: s.recorder,
	})
}

func (s *SyncLoop) readyChanged(ready bool, message string) {
	s.notify(word(ready, "ready", "not-ready"), message)
}

func (s *SyncLoop) notify(what, detail string) {
	if s.cfg.Notify != nil {
		s.cfg.Notify(Event{At: time.Now(), What: what, Detail: detail})
	}
}

func (s *SyncLoop) wireLoop() {
	s.loop = &loop{
		handler: s, log: s.log, periods: s.cfg.Periods,
		runtimeErrors: s.state.RuntimeErrors, pods: s.pods.PodByUID, due: s.podsDue, cleanDead: s.cleanDead,
		sourcesReady: s.sourcesReady, sawSource: s.sawSource,
		readiness: func(u prober.Update) {
			s.status.SetContainerReadiness(u.PodUID, u.ContainerID, u.Result == prober.Success)
		},
		started: func(u prober.Update) {
			s.status.SetContainerStartup(u.PodUID, u.ContainerID, u.Result == prober.Success)
		},
		updates: s.mux.Updates(), events: s.pleg.Events(),
		livenessCh: s.liveness.Updates(), readinessCh: s.readiness.Updates(), startupCh: s.startup.Updates(),
		notify: s.notify,
	}
}

func (s *SyncLoop) sourcesReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mux.SeenAllSources(s.seen)
}

func (s *SyncLoop) sawSource(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[source] = true
}

// podsDue are the pods whose resync or back-off is over, and those beyond their active deadline.
func (s *SyncLoop) podsDue() []*v1.Pod {
	ready := s.workers.Queue.Ready()
	var out []*v1.Pod
	for _, p := range s.pods.Pods() {
		if ready[p.UID] || s.pastDeadline(p) {
			out = append(out, p)
		}
	}
	return out
}

func (s *SyncLoop) pastDeadline(p *v1.Pod) bool {
	api, ok := s.status.PodStatus(p.UID)
	return ok && !pod.IsTerminal(api.Phase) && status.PastDeadline(p, &api, time.Now())
}

func (s *SyncLoop) wireServer() error {
	if s.cfg.Address == "" {
		return nil
	}
	var err error
	s.server, err = server.New(server.Config{
		Address: s.cfg.Address, Healthy: s.loop.healthy, Pods: s.PodsWithStatus,
		RunningPods: func(ctx context.Context) ([]*container.Pod, error) { return s.runtime.GetPods(ctx, false) },
		Summary:     s.stats.Summary, Metrics: s.registry, Probes: s.probes,
		Configz: s.cfg.Kubelet, Debugging: s.cfg.Kubelet.EnableDebuggingHandlers, Profiling: s.cfg.Kubelet.EnableProfilingHandler, Log: s.log,
	})
	return err
}

// PodsWithStatus are the desired pods with the statuses that were last computed for them.
func (s *SyncLoop) PodsWithStatus() []*v1.Pod {
	var out []*v1.Pod
	for _, p := range s.pods.Pods() {
		if api, ok := s.status.PodStatus(p.UID); ok {
			p = p.DeepCopy()
			p.Status = api
		}
		out = append(out, p)
	}
	return out
}
