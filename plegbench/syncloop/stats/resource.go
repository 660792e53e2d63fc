package stats

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A Collector turns summaries into what /metrics/resource serves, which is what metrics-server scrapes
// (pkg/kubelet/metrics/collectors/resource_metrics.go upstream). Each sample bears the time at which it was measured.
type Collector struct {
	summary func(ctx context.Context) (*statsapi.Summary, error)
	log     logr.Logger
	timeout time.Duration
	descs   map[string]*prometheus.Desc
}

// NewCollector makes a Collector of a Provider's Summary. A summary that takes longer than the timeout is a scrape error.
func NewCollector(summary func(ctx context.Context) (*statsapi.Summary, error), timeout time.Duration, log logr.Logger) *Collector {
	c := &Collector{summary: summary, log: log, timeout: timeout, descs: map[string]*prometheus.Desc{}}
	of := func(help string, labels []string, names ...string) {
		for _, name := range names {
			c.descs[name] = prometheus.NewDesc(name, help, labels, nil)
		}
	}
	ofContainer, ofPod := []string{"container", "pod", "namespace"}, []string{"pod", "namespace"}
	of("CPU time in core-seconds.", nil, "node_cpu_usage_seconds_total")
	of("Working set of the node in bytes.", nil, "node_memory_working_set_bytes")
	of("Swap in use on the node in bytes.", nil, "node_swap_usage_bytes")
	of("CPU time of the container in core-seconds.", ofContainer, "container_cpu_usage_seconds_total")
	of("Working set of the container in bytes.", ofContainer, "container_memory_working_set_bytes")
	of("Start of the container in seconds since the epoch.", ofContainer, "container_start_time_seconds")
	of("Swap in use by the container in bytes.", ofContainer, "container_swap_usage_bytes")
	of("CPU time of the pod in core-seconds.", ofPod, "pod_cpu_usage_seconds_total")
	of("Working set of the pod in bytes.", ofPod, "pod_memory_working_set_bytes")
	of("1 if the metrics could not be read, otherwise 0.", nil, "resource_scrape_error")
	return c
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect sends the samples of one summary, and whether there was one.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout) // prometheus has none to hand in
	defer cancel()
	s, err := c.summary(ctx)
	failed := 0.0
	if err != nil {
		c.log.Error(err, "Error getting summary for resourceMetric prometheus endpoint")
		failed, s = 1, &statsapi.Summary{}
	}
	c.send(ch, "resource_scrape_error", prometheus.GaugeValue, metav1.Time{}, failed)
	c.usage(ch, "node", s.Node.CPU, s.Node.Memory, s.Node.Swap)
	for _, p := range s.Pods {
		for _, ctr := range p.Containers {
			labels := []string{ctr.Name, p.PodRef.Name, p.PodRef.Namespace}
			if ctr.StartTime.Unix() > 0 {
				seconds := float64(ctr.StartTime.UnixNano()) / float64(time.Second)
				c.send(ch, "container_start_time_seconds", prometheus.GaugeValue, metav1.Time{}, seconds, labels...)
			}
			c.usage(ch, "container", ctr.CPU, ctr.Memory, ctr.Swap, labels...)
		}
		c.usage(ch, "pod", p.CPU, p.Memory, nil, p.PodRef.Name, p.PodRef.Namespace)
	}
}

// usage sends what is known of one node, pod or container.
func (c *Collector) usage(
	ch chan<- prometheus.Metric, of string, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, swap *statsapi.SwapStats, labels ...string,
) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		seconds := float64(*cpu.UsageCoreNanoSeconds) / float64(time.Second)
		c.send(ch, of+"_cpu_usage_seconds_total", prometheus.CounterValue, cpu.Time, seconds, labels...)
	}
	if memory != nil && memory.WorkingSetBytes != nil {
		c.send(ch, of+"_memory_working_set_bytes", prometheus.GaugeValue, memory.Time, float64(*memory.WorkingSetBytes), labels...)
	}
	if swap != nil && swap.SwapUsageBytes != nil {
		c.send(ch, of+"_swap_usage_bytes", prometheus.GaugeValue, swap.Time, float64(*swap.SwapUsageBytes), labels...)
	}
}

func (c *Collector) send(
	ch chan<- prometheus.Metric, name string, kind prometheus.ValueType, at metav1.Time, v float64, labels ...string,
) {
	m := prometheus.MustNewConstMetric(c.descs[name], kind, v, labels...)
	if !at.IsZero() {
		m = prometheus.NewMetricWithTimestamp(at.Time, m)
	}
	ch <- m
}
