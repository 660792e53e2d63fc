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

// runtimeBuckets are the buckets of kubelet_runtime_operations_duration_seconds: 5 ms to 745 s.
func runtimeBuckets() []float64 { return prometheus.ExponentialBuckets(.005, 2.5, 14) }

// New makes the metrics and registers them: the metrics of probes with probes, all others with main.
func New(main, probes prometheus.Registerer) *Metrics {
	m, p := promauto.With(main), promauto.With(probes)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Subsystem: "kubelet", Name: name, Help: help}
	}
	gauge := func(name, help string) prometheus.Gauge { return m.NewGauge(prometheus.GaugeOpts(opts(name, help))) }
	gaugeVec := func(name, help, label string) *prometheus.GaugeVec {
		return m.NewGaugeVec(prometheus.GaugeOpts(opts(name, help)), []string{label})
	}
	counter := func(name, help string) prometheus.Counter {
		return m.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	counterVec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return m.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return m.NewHistogram(histogramOpts(name, help, buckets))
	}
	histogramVec := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		return m.NewHistogramVec(histogramOpts(name, help, buckets), []string{label})
	}
	return &Metrics{
		PLEGRelistDuration: histogram("pleg_relist_duration_seconds",
			"Duration in seconds for relisting pods in PLEG.", nil),
		PLEGRelistInterval: histogram("pleg_relist_interval_seconds",
			"Interval in seconds between relisting in PLEG.", nil),
		PLEGPodRelistDuration: histogram("pleg_pod_relist_duration_seconds",
			"Duration in seconds for relisting a single pod in PLEG.", nil),
		PLEGLastSeen:      gauge("pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active."),
		PLEGDiscardEvents: counter("pleg_discard_events", "The number of discard events in PLEG."),

		EventedPLEGErrors: counter("evented_pleg_connection_error_count",
			"The number of errors of streaming CRI events."),
		EventedPLEGConnections: counter("evented_pleg_connection_success_count",
			"The number of times a streaming client was obtained."),
		EventedPLEGLatency: histogram("evented_pleg_connection_latency_seconds",
			"The latency of streaming connections with the runtime.", nil),

		RunningPods:       gauge("running_pods", "Number of pods that have a running pod sandbox."),
		RunningContainers: gaugeVec("running_containers", "Number of containers by state.", "container_state"),
		DesiredPods: gaugeVec("desired_pods", "The number of pods the node is being instructed to run.",
			"static"),
		MirrorPods:   gauge("mirror_pods", "The number of mirror pods to try to keep at the API server."),
		OrphanedPods: counter("orphaned_runtime_pods_total", "Pods that run and that no worker knew."),
		RestartedPods: counterVec("restarted_pods_total", "Pods that were added again after they had terminated.",
			"static"),

		PodWorkerDuration: histogramVec("pod_worker_duration_seconds", "Duration in seconds to sync a single pod.",
			nil, "operation_type"),
		PodWorkerStartDuration: histogram("pod_worker_start_duration_seconds",
			"Duration in seconds from a pod being seen to the worker's start.", nil),
		PodStartDuration: histogram("pod_start_duration_seconds",
			"Duration in seconds from a pod being seen to its running.",
			[]float64{
				0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700,
				3600,
			}),
		AdmissionRejections: counterVec("admission_rejections_total", "Pods that were rejected.", "reason"),

		RuntimeOperations: counterVec("runtime_operations_total", "Number of runtime operations.",
			"operation_type"),
		RuntimeOperationsErrors: counterVec("runtime_operations_errors_total",
			"Number of runtime operations that failed.", "operation_type"),
		RuntimeOperationsDuration: histogramVec("runtime_operations_duration_seconds",
			"Duration in seconds of runtime operations.", runtimeBuckets(), "operation_type"),
		RunPodSandboxDuration: histogramVec("run_podsandbox_duration_seconds",
			"Duration in seconds of RunPodSandbox.", nil, "runtime_handler"),
		RunPodSandboxErrors: counterVec("run_podsandbox_errors_total",
			"Number of RunPodSandbox calls that failed.", "runtime_handler"),
		StartedPods:       counter("started_pods_total", "Number of pods started."),
		StartedPodsErrors: counter("started_pods_errors_total", "Number of errors when starting pods."),
		StartedContainers: counterVec("started_containers_total", "Number of containers started.",
			"container_type"),
		StartedContainersErrors: counterVec("started_containers_errors_total",
			"Number of errors when starting containers.", "container_type", "code"),

		Evictions: counterVec("evictions", "Number of pod evictions.", "eviction_signal"),
		ImageGarbageCollected: counterVec("image_garbage_collected_total",
			"Number of images removed by image garbage collection.", "reason"),
		ContainerGCRemoved: counter("container_garbage_collected_total",
			"Number of containers removed by container garbage collection."),
		NodeName:  gaugeVec("node_name", "The node's name. The value is always 1.", "node"),
		OOMEvents: counter("oom_events_total", "Number of out-of-memory kills of the whole system."),
		OrphanVolumesCleaned: gauge("orphan_pod_cleaned_volumes",
			"Orphaned pods whose volumes were cleaned in the last sweep."),
		OrphanVolumesCleanFail: gauge("orphan_pod_cleaned_volumes_errors",
			"Orphaned pods whose volumes could not be cleaned in the last sweep."),

		ProbesTotal: p.NewCounterVec(
			prometheus.CounterOpts{Name: "prober_probe_total", Help: "Number of probes of a container by result."},
			[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		ProbesDuration: p.NewHistogramVec(
			prometheus.HistogramOpts{Name: "prober_probe_duration_seconds", Help: "Duration in seconds of a probe."},
			[]string{"probe_type", "container", "pod", "namespace"}),
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

func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Subsystem: "kubelet", Name: name, Help: help, Buckets: buckets}
}
