// Package metrics holds the syncLoop's metrics under the kubelet's names, with the kubelet's buckets.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the collectors of one syncLoop.
type Metrics struct {
	PLEGRelistDuration    prometheus.Histogram
	PLEGRelistInterval    prometheus.Histogram
	PLEGPodRelistDuration prometheus.Histogram
	PLEGLastSeen          prometheus.Gauge // unix seconds of the start of the last relist; set when health is asked
	PLEGDiscardEvents     prometheus.Counter

	EventedPLEGErrors      prometheus.Counter
	EventedPLEGConnections prometheus.Counter
	EventedPLEGLatency     prometheus.Histogram

	RunningPods       prometheus.Gauge
	RunningContainers *prometheus.GaugeVec // container_state
	DesiredPods       *prometheus.GaugeVec // static
	MirrorPods        prometheus.Gauge
	OrphanedPods      prometheus.Counter
	RestartedPods     *prometheus.CounterVec // static

	PodWorkerDuration      *prometheus.HistogramVec // operation_type
	PodWorkerStartDuration prometheus.Histogram
	PodStartDuration       prometheus.Histogram
	PodStatusSyncDuration  prometheus.Histogram
	AdmissionRejections    *prometheus.CounterVec // reason

	RuntimeOperations         *prometheus.CounterVec   // operation_type
	RuntimeOperationsErrors   *prometheus.CounterVec   // operation_type
	RuntimeOperationsDuration *prometheus.HistogramVec // operation_type
	RunPodSandboxDuration     *prometheus.HistogramVec // runtime_handler
	RunPodSandboxErrors       *prometheus.CounterVec   // runtime_handler
	StartedPods               prometheus.Counter
	StartedPodsErrors         prometheus.Counter
	StartedContainers         *prometheus.CounterVec // container_type
	StartedContainersErrors   *prometheus.CounterVec // container_type, code

	Evictions              *prometheus.CounterVec // eviction_signal
	ImageGarbageCollected  *prometheus.CounterVec // reason
	ContainerGCRemoved     prometheus.Counter
	NodeName               *prometheus.GaugeVec     // node
	ProbesTotal            *prometheus.CounterVec   // served at /metrics/probes
	ProbesDuration         *prometheus.HistogramVec // likewise
	OOMEvents              prometheus.Counter
	OrphanVolumesCleaned   prometheus.Gauge
	OrphanVolumesCleanFail prometheus.Gauge
}

// runtimeBuckets are those of kubelet_runtime_operations_duration_seconds: 5 ms to 745 s.
func runtimeBuckets() []float64 { return prometheus.ExponentialBuckets(.005, 2.5, 14) }

// New makes the metrics and registers them: those of probes with probes, all others with main.
func New(main, probes prometheus.Registerer) *Metrics {
	m, p := promauto.With(main), promauto.With(probes)
	return &Metrics{
		PLEGRelistDuration:    m.NewHistogram(histogram("pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG.", nil)),
		PLEGRelistInterval:    m.NewHistogram(histogram("pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.", nil)),
		PLEGPodRelistDuration: m.NewHistogram(histogram("pleg_pod_relist_duration_seconds", "Duration in seconds for relisting a single pod in PLEG.", nil)),
		PLEGLastSeen:          m.NewGauge(prometheus.GaugeOpts(opts("pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active."))),
		PLEGDiscardEvents:     m.NewCounter(prometheus.CounterOpts(opts("pleg_discard_events", "The number of discard events in PLEG."))),

		EventedPLEGErrors:      m.NewCounter(prometheus.CounterOpts(opts("evented_pleg_connection_error_count", "The number of errors of streaming CRI events."))),
		EventedPLEGConnections: m.NewCounter(prometheus.CounterOpts(opts("evented_pleg_connection_success_count", "The number of times a streaming client was obtained."))),
		EventedPLEGLatency:     m.NewHistogram(histogram("evented_pleg_connection_latency_seconds", "The latency of streaming connections with the runtime.", nil)),

		RunningPods:       m.NewGauge(prometheus.GaugeOpts(opts("running_pods", "Number of pods that have a running pod sandbox."))),
		RunningContainers: m.NewGaugeVec(prometheus.GaugeOpts(opts("running_containers", "Number of containers by state.")), labels{"container_state"}),
		DesiredPods:       m.NewGaugeVec(prometheus.GaugeOpts(opts("desired_pods", "The number of pods the node is being instructed to run.")), labels{"static"}),
		MirrorPods:        m.NewGauge(prometheus.GaugeOpts(opts("mirror_pods", "The number of mirror pods to try to keep at the API server."))),
		OrphanedPods:      m.NewCounter(prometheus.CounterOpts(opts("orphaned_runtime_pods_total", "Pods that run and that no worker knew."))),
		RestartedPods:     m.NewCounterVec(prometheus.CounterOpts(opts("restarted_pods_total", "Pods that were added again after they had terminated.")), labels{"static"}),

		PodWorkerDuration:      m.NewHistogramVec(histogram("pod_worker_duration_seconds", "Duration in seconds to sync a single pod.", nil), labels{"operation_type"}),
		PodWorkerStartDuration: m.NewHistogram(histogram("pod_worker_start_duration_seconds", "Duration in seconds from a pod being seen to the worker's start.", nil)),
		PodStartDuration: m.NewHistogram(histogram("pod_start_duration_seconds", "Duration in seconds from a pod being seen to its running.",
			[]float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600})),
		PodStatusSyncDuration: m.NewHistogram(histogram("pod_status_sync_duration_seconds", "Duration in seconds to sync a pod's status to the API server.",
			[]float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60})),
		AdmissionRejections: m.NewCounterVec(prometheus.CounterOpts(opts("admission_rejections_total", "Pods that were rejected.")), labels{"reason"}),

		RuntimeOperations:         m.NewCounterVec(prometheus.CounterOpts(opts("runtime_operations_total", "Number of runtime operations.")), labels{"operation_type"}),
		RuntimeOperationsErrors:   m.NewCounterVec(prometheus.CounterOpts(opts("runtime_operations_errors_total", "Number of runtime operations that failed.")), labels{"operation_type"}),
		RuntimeOperationsDuration: m.NewHistogramVec(histogram("runtime_operations_duration_seconds", "Duration in seconds of runtime operations.", runtimeBuckets()), labels{"operation_type"}),
		RunPodSandboxDuration:     m.NewHistogramVec(histogram("run_podsandbox_duration_seconds", "Duration in seconds of RunPodSandbox.", nil), labels{"runtime_handler"}),
		RunPodSandboxErrors:       m.NewCounterVec(prometheus.CounterOpts(opts("run_podsandbox_errors_total", "Number of RunPodSandbox calls that failed.")), labels{"runtime_handler"}),
		StartedPods:               m.NewCounter(prometheus.CounterOpts(opts("started_pods_total", "Number of pods started."))),
		StartedPodsErrors:         m.NewCounter(prometheus.CounterOpts(opts("started_pods_errors_total", "Number of errors when starting pods."))),
		StartedContainers:         m.NewCounterVec(prometheus.CounterOpts(opts("started_containers_total", "Number of containers started.")), labels{"container_type"}),
		StartedContainersErrors:   m.NewCounterVec(prometheus.CounterOpts(opts("started_containers_errors_total", "Number of errors when starting containers.")), labels{"container_type", "code"}),

		Evictions:              m.NewCounterVec(prometheus.CounterOpts(opts("evictions", "Number of pod evictions.")), labels{"eviction_signal"}),
		ImageGarbageCollected:  m.NewCounterVec(prometheus.CounterOpts(opts("image_garbage_collected_total", "Number of images removed by image garbage collection.")), labels{"reason"}),
		ContainerGCRemoved:     m.NewCounter(prometheus.CounterOpts(opts("container_garbage_collected_total", "Number of containers removed by container garbage collection."))),
		NodeName:               m.NewGaugeVec(prometheus.GaugeOpts(opts("node_name", "The node's name. The value is always 1.")), labels{"node"}),
		OOMEvents:              m.NewCounter(prometheus.CounterOpts(opts("oom_events_total", "Number of out-of-memory kills of the whole system."))),
		OrphanVolumesCleaned:   m.NewGauge(prometheus.GaugeOpts(opts("orphan_pod_cleaned_volumes", "Orphaned pods whose volumes were cleaned in the last sweep."))),
		OrphanVolumesCleanFail: m.NewGauge(prometheus.GaugeOpts(opts("orphan_pod_cleaned_volumes_errors", "Orphaned pods whose volumes could not be cleaned in the last sweep."))),

		ProbesTotal: p.NewCounterVec(prometheus.CounterOpts{Name: "prober_probe_total", Help: "Number of probes of a container by result."},
			labels{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		ProbesDuration: p.NewHistogramVec(prometheus.HistogramOpts{Name: "prober_probe_duration_seconds", Help: "Duration in seconds of a probe."},
			labels{"probe_type", "container", "pod", "namespace"}),
	}
}

// Observe counts a CRI call; it is for remote.Options.Observe.
func (m *Metrics) Observe(operation string, took time.Duration, err error) {
	m.RuntimeOperations.WithLabelValues(operation).Inc()
	m.RuntimeOperationsDuration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.RuntimeOperationsErrors.WithLabelValues(operation).Inc()
	}
}

type labels = []string

func opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Subsystem: "kubelet", Name: name, Help: help}
}

func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Subsystem: "kubelet", Name: name, Help: help, Buckets: buckets}
}
