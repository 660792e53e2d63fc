// Package metrics holds the syncLoop's metrics under the kubelet's names, with the kubelet's buckets.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	m := maker{main}
	p := maker{probes}
	return &Metrics{
		PLEGRelistDuration:    m.histogram("pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG.", nil),
		PLEGRelistInterval:    m.histogram("pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.", nil),
		PLEGPodRelistDuration: m.histogram("pleg_pod_relist_duration_seconds", "Duration in seconds for relisting a single pod in PLEG.", nil),
		PLEGLastSeen:          m.gauge("pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active."),
		PLEGDiscardEvents:     m.counter("pleg_discard_events", "The number of discard events in PLEG."),

		EventedPLEGErrors:      m.counter("evented_pleg_connection_error_count", "The number of errors of streaming CRI events."),
		EventedPLEGConnections: m.counter("evented_pleg_connection_success_count", "The number of times a streaming client was obtained."),
		EventedPLEGLatency:     m.histogram("evented_pleg_connection_latency_seconds", "The latency of streaming connections with the runtime.", nil),

		RunningPods:       m.gauge("running_pods", "Number of pods that have a running pod sandbox."),
		RunningContainers: m.gaugeVec("running_containers", "Number of containers by state.", "container_state"),
		DesiredPods:       m.gaugeVec("desired_pods", "The number of pods the node is being instructed to run.", "static"),
		MirrorPods:        m.gauge("mirror_pods", "The number of mirror pods to try to keep at the API server."),
		OrphanedPods:      m.counter("orphaned_runtime_pods_total", "Pods that run and that no worker knew."),
		RestartedPods:     m.counterVec("restarted_pods_total", "Pods that were added again after they had terminated.", "static"),

		PodWorkerDuration: m.histogramVec("pod_worker_duration_seconds", "Duration in seconds to sync a single pod.", nil, "operation_type"),
		PodWorkerStartDuration: m.histogram("pod_worker_start_duration_seconds",
			"Duration in seconds from a pod being seen to the worker's start.", nil),
		PodStartDuration: m.histogram("pod_start_duration_seconds", "Duration in seconds from a pod being seen to its running.",
			[]float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}),
		PodStatusSyncDuration: m.histogram("pod_status_sync_duration_seconds",
			"Duration in seconds to sync a pod's status to the API server.", []float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60}),
		AdmissionRejections: m.counterVec("admission_rejections_total", "Pods that were rejected.", "reason"),

		RuntimeOperations:       m.counterVec("runtime_operations_total", "Number of runtime operations.", "operation_type"),
		RuntimeOperationsErrors: m.counterVec("runtime_operations_errors_total", "Number of runtime operations that failed.", "operation_type"),
		RuntimeOperationsDuration: m.histogramVec("runtime_operations_duration_seconds", "Duration in seconds of runtime operations.",
			runtimeBuckets(), "operation_type"),
		RunPodSandboxDuration:   m.histogramVec("run_podsandbox_duration_seconds", "Duration in seconds of RunPodSandbox.", nil, "runtime_handler"),
		RunPodSandboxErrors:     m.counterVec("run_podsandbox_errors_total", "Number of RunPodSandbox calls that failed.", "runtime_handler"),
		StartedPods:             m.counter("started_pods_total", "Number of pods started."),
		StartedPodsErrors:       m.counter("started_pods_errors_total", "Number of errors when starting pods."),
		StartedContainers:       m.counterVec("started_containers_total", "Number of containers started.", "container_type"),
		StartedContainersErrors: m.counterVec("started_containers_errors_total", "Number of errors when starting containers.", "container_type", "code"),

		Evictions:              m.counterVec("evictions", "Number of pod evictions.", "eviction_signal"),
		ImageGarbageCollected:  m.counterVec("image_garbage_collected_total", "Number of images removed by image garbage collection.", "reason"),
		ContainerGCRemoved:     m.counter("container_garbage_collected_total", "Number of containers removed by container garbage collection."),
		NodeName:               m.gaugeVec("node_name", "The node's name. The value is always 1.", "node"),
		OOMEvents:              m.counter("oom_events_total", "Number of out-of-memory kills of the whole system."),
		OrphanVolumesCleaned:   m.gauge("orphan_pod_cleaned_volumes", "Orphaned pods whose volumes were cleaned in the last sweep."),
		OrphanVolumesCleanFail: m.gauge("orphan_pod_cleaned_volumes_errors", "Orphaned pods whose volumes could not be cleaned in the last sweep."),

		ProbesTotal: p.plainCounterVec("prober_probe_total", "Number of probes of a container by result.",
			"probe_type", "result", "container", "pod", "namespace", "pod_uid"),
		ProbesDuration: p.plainHistogramVec("prober_probe_duration_seconds", "Duration in seconds of a probe.",
			"probe_type", "container", "pod", "namespace"),
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

// A maker makes collectors and registers them.
type maker struct{ reg prometheus.Registerer }

const subsystem = "kubelet"

func registered[C prometheus.Collector](m maker, c C) C {
	m.reg.MustRegister(c)
	return c
}

func (m maker) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return registered(m, prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}))
}

func (m maker) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return registered(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}, labels))
}

func (m maker) plainHistogramVec(name, help string, labels ...string) *prometheus.HistogramVec {
	return registered(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help}, labels))
}

func (m maker) gauge(name, help string) prometheus.Gauge {
	return registered(m, prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}))
}

func (m maker) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return registered(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, labels))
}

func (m maker) counter(name, help string) prometheus.Counter {
	return registered(m, prometheus.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}))
}

func (m maker) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return registered(m, prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels))
}

func (m maker) plainCounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return registered(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}
