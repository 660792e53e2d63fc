package metrics

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Resource is what /metrics/resource serves, for metrics-server: the usage of the node, pods and containers with the
// times of its measurement (pkg/kubelet/metrics/collectors/resource_metrics.go upstream).
type Resource struct {
	Summary func(ctx context.Context, fresh bool) (*statsapi.Summary, error)
	Log     logr.Logger
}

// Describe sends nothing: what there is depends on the pods.
func (r Resource) Describe(chan<- *prometheus.Desc) {}

// Collect sends the figures of the summary; without one, only resource_scrape_error.
func (r Resource) Collect(ch chan<- prometheus.Metric) {
	s, err := r.Summary(context.Background(), false) // whose calls have deadlines
	failed := 0.0
	if err != nil {
		r.Log.Error(err, "Error getting summary for resourceMetric prometheus endpoint")
		s, failed = &statsapi.Summary{}, 1
	}
	u := resourceUsage{ch: ch, kind: "node", swap: "Current swap usage of the node in bytes"}
	u.send(s.Node.CPU, s.Node.Memory, s.Node.Swap)
	for _, p := range s.Pods {
		u = resourceUsage{ch, "pod", "Current amount of the pod swap usage in bytes", []string{"pod", "namespace"}, nil}
		u.values = []string{p.PodRef.Name, p.PodRef.Namespace}
		u.send(p.CPU, p.Memory, p.Swap)
		u.kind, u.swap = "container", "Current amount of the container swap usage in bytes"
		u.labels = append([]string{"container"}, u.labels...)
		for _, c := range p.Containers {
			u.values = []string{c.Name, p.PodRef.Name, p.PodRef.Namespace}
			u.send(c.CPU, c.Memory, c.Swap)
			if limit := c.Swap; limit != nil && limit.SwapAvailableBytes != nil && limit.SwapUsageBytes != nil {
				all := *limit.SwapAvailableBytes + *limit.SwapUsageBytes
				u.one("swap_limit_bytes", "[ALPHA] Current amount of the container swap limit in bytes"+linuxOnly,
					prometheus.GaugeValue, limit.Time, &all, 1)
			}
			if start := c.StartTime; start.Unix() > 0 {
				at := uint64(start.UnixNano())
				u.one("start_time_seconds", "[STABLE] Start time of the container since unix epoch in seconds",
					prometheus.GaugeValue, metav1.Time{}, &at, float64(time.Second))
			}
		}
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("resource_scrape_error",
		"[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", nil, nil),
		prometheus.GaugeValue, failed)
}

const linuxOnly = ". Reported only on non-windows systems"

// A resourceUsage sends the usage of a node, pod or container.
type resourceUsage struct {
	ch             chan<- prometheus.Metric
	kind, swap     string // the prefix of the names, and the help on swap
	labels, values []string
}

func (u resourceUsage) send(c *statsapi.CPUStats, m *statsapi.MemoryStats, s *statsapi.SwapStats) {
	if c != nil {
		u.one("cpu_usage_seconds_total", "[STABLE] Cumulative cpu time consumed by the "+u.kind+" in core-seconds",
			prometheus.CounterValue, c.Time, c.UsageCoreNanoSeconds, float64(time.Second))
	}
	if m != nil {
		u.one("memory_working_set_bytes", "[STABLE] Current working set of the "+u.kind+" in bytes",
			prometheus.GaugeValue, m.Time, m.WorkingSetBytes, 1)
	}
	if s != nil {
		u.one("swap_usage_bytes", "[ALPHA] "+u.swap+linuxOnly, prometheus.GaugeValue, s.Time, s.SwapUsageBytes, 1)
	}
}

// one sends one sample, divided by a unit, unless there is none; without a time if that is zero.
func (u resourceUsage) one(
	name, help string, kind prometheus.ValueType, at metav1.Time, value *uint64, unit float64,
) {
	if value == nil {
		return
	}
	desc := prometheus.NewDesc(u.kind+"_"+name, help, u.labels, nil)
	metric := prometheus.MustNewConstMetric(desc, kind, float64(*value)/unit, u.values...)
	if !at.IsZero() {
		metric = prometheus.NewMetricWithTimestamp(at.Time, metric)
	}
	u.ch <- metric
}
