package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestResource writes what a kubelet 1.36.3 wrote for the same figures, byte for byte.
func TestResource(t *testing.T) {
	cpu := func(used uint64, at int64) *statsapi.CPUStats {
		return &statsapi.CPUStats{Time: metav1.NewTime(time.UnixMilli(at)), UsageCoreNanoSeconds: &used}
	}
	memory := func(set uint64, at int64) *statsapi.MemoryStats {
		return &statsapi.MemoryStats{Time: metav1.NewTime(time.UnixMilli(at)), WorkingSetBytes: &set}
	}
	swap := func(at int64) *statsapi.SwapStats {
		return &statsapi.SwapStats{Time: metav1.NewTime(time.UnixMilli(at)), SwapUsageBytes: new(uint64)}
	}
	container := func(name string, start int64, used, set uint64, at, swapAt int64) statsapi.ContainerStats {
		c := statsapi.ContainerStats{
			Name: name, StartTime: metav1.NewTime(time.Unix(0, start)), CPU: cpu(used, at), Memory: memory(set, at),
			Swap: swap(swapAt),
		}
		c.Swap.SwapAvailableBytes = new(uint64)
		return c
	}
	summary := &statsapi.Summary{
		Node: statsapi.NodeStats{
			CPU: cpu(4833415463346, 1795886394720), Memory: memory(10369482752, 1795886394720),
			Swap: swap(1795886394720),
		},
		Pods: []statsapi.PodStats{
			{
				PodRef: statsapi.PodReference{Name: "busy-ms", Namespace: "shop"}, CPU: cpu(91498663159, 1795886398860),
				Memory: memory(1003520, 1795886398860), Swap: swap(1795886398860),
				Containers: []statsapi.ContainerStats{
					container("burn", 1795885515486284700, 92379732232, 237568, 1795886407127, 1795886407142),
					container("idle", 1795885515697433900, 9005428, 221184, 1795886407133, 1795886407142),
				},
			},
			{
				PodRef: statsapi.PodReference{Name: "memory-ms", Namespace: "shop"}, CPU: cpu(3074156600, 1795886392108),
				Memory: memory(70725632, 1795886392108), Swap: swap(1795886392108),
				Containers: []statsapi.ContainerStats{
					container("hold", 1795885515434699500, 3091673040, 70488064, 1795886407138, 1795886407142),
				},
			},
			{PodRef: statsapi.PodReference{Name: "new"}, Containers: []statsapi.ContainerStats{{Name: "no figures yet"}}},
		},
	}
	page := func(s *statsapi.Summary, err error) string {
		r := prometheus.NewRegistry()
		r.MustRegister(Resource{
			Summary: func(context.Context, bool) (*statsapi.Summary, error) { return s, err }, Log: logr.Discard(),
		})
		w := httptest.NewRecorder()
		promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Body.String()
	}
	testkit.Equal(t, "a kubelet's page", testkit.Read(t, "testdata/kubelet.txt"), page(summary, nil))
	const failed = "# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, " +
		"0 otherwise\n# TYPE resource_scrape_error gauge\nresource_scrape_error 1\n"
	testkit.Equal(t, "page without a summary", failed, page(nil, errors.New("down")))
}
