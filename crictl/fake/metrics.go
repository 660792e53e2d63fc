package fake

import (
	"context"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A metric is one of the cAdvisor metrics that runtimes serve through CRI.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	read       func(c *container, now time.Time) uint64
}

func metrics() []metric {
	return []metric{
		{
			"container_cpu_usage_seconds_total", "Cumulative cpu time consumed", runtimeapi.MetricType_COUNTER,
			func(c *container, now time.Time) uint64 { return c.cpuSeconds(now) / uint64(time.Second) },
		},
		{
			"container_memory_working_set_bytes", "Current working set", runtimeapi.MetricType_GAUGE,
			func(c *container, _ time.Time) uint64 { return c.memory() },
		},
	}
}

// metricLabels are the label keys of all metrics; label values come in the same order.
func metricLabels() []string { return []string{"id", "name", "image"} }

// ListMetricDescriptors describes what ListPodSandboxMetrics returns.
func (r *runtimeService) ListMetricDescriptors(
	context.Context, *runtimeapi.ListMetricDescriptorsRequest,
) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	resp := &runtimeapi.ListMetricDescriptorsResponse{}
	for _, m := range metrics() {
		resp.Descriptors = append(resp.Descriptors, &runtimeapi.MetricDescriptor{
			Name: m.name, Help: m.help, LabelKeys: metricLabels(),
		})
	}
	return resp, nil
}

// ListPodSandboxMetrics returns the metrics of all ready sandboxes.
func (r *runtimeService) ListPodSandboxMetrics(
	ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest,
) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	list := r.sandboxMetrics()
	if err := perItem(ctx, len(list)); err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: list}, nil
}

// StreamPodSandboxMetrics is ListPodSandboxMetrics in batches.
func (r *runtimeService) StreamPodSandboxMetrics(
	_ *runtimeapi.StreamPodSandboxMetricsRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse],
) error {
	return sendBatches(stream.Context(), r.sandboxMetrics(), func(batch []*runtimeapi.PodSandboxMetrics) error {
		return stream.Send(&runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: batch})
	})
}

func (r *runtimeService) sandboxMetrics() []*runtimeapi.PodSandboxMetrics {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	now := time.Now()
	var list []*runtimeapi.PodSandboxMetrics
	for _, sb := range r.store.sandboxes.all() {
		if !sb.ready {
			continue
		}
		pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: sb.id}
		for _, c := range sb.containers {
			if c.running() {
				pod.ContainerMetrics = append(pod.ContainerMetrics, &runtimeapi.ContainerMetrics{
					ContainerId: c.id, Metrics: c.metrics(now),
				})
			}
		}
		list = append(list, pod)
	}
	return list
}

func (c *container) metrics(now time.Time) []*runtimeapi.Metric {
	var all []*runtimeapi.Metric
	for _, m := range metrics() {
		all = append(all, &runtimeapi.Metric{
			Name: m.name, Timestamp: now.UnixNano(), MetricType: m.kind, Value: value(m.read(c, now)),
			LabelValues: []string{c.id, c.name, c.image.GetImage()},
		})
	}
	return all
}
