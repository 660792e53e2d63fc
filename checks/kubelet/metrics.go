package kubelet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The families about PLEG and the runtime (pkg/kubelet/metrics/metrics.go upstream, and the Prometheus client's own).
const (
	plegLastSeen   = "kubelet_pleg_last_seen_seconds"
	relistDuration = "kubelet_pleg_relist_duration_seconds"
	runtimeErrors  = "kubelet_runtime_operations_errors_total"
	runningPods    = "kubelet_running_pods"
	processStart   = "process_start_time_seconds"
	connErrors     = "kubelet_evented_pleg_connection_error_count"
)

const (
	maxMetricsLine = 64 << 10
	maxWanted      = 1 << 20 // bytes of the families that are kept; they have some 5 KiB
	maxOperations  = 100     // the kubelet knows some 40
)

// parseMetrics reads a few families out of the text format. Lines of other families, nearly all of a kubelet's, are
// passed over as they arrive and never parsed.
func parseMetrics(body io.Reader) (*Metrics, error) {
	wanted, err := filterMetrics(body)
	if err != nil {
		return nil, fmt.Errorf("reading the kubelet's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(wanted))
	if err != nil {
		return nil, fmt.Errorf("reading the kubelet's metrics: %s", oneLine(err.Error()))
	}
	if len(families) == 0 {
		return nil, errors.New("reading the kubelet's metrics: none is a kubelet's")
	}
	m := &Metrics{
		PLEGLastSeen: instant(value(families[plegLastSeen])),
		RunningPods:  value(families[runningPods]),
		ProcessStart: instant(value(families[processStart])),

		EventedConnErrors: value(families[connErrors]),
		RuntimeErrors:     map[string]float64{},
	}
	for _, metric := range families[runtimeErrors].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "operation_type" && len(m.RuntimeErrors) < maxOperations {
				m.RuntimeErrors[oneLine(label.GetValue())] = number(metric)
			}
		}
	}
	for _, metric := range families[relistDuration].GetMetric() {
		h := metric.GetHistogram()
		m.Relists, m.RelistSeconds, m.RelistP99 = h.GetSampleCount(), h.GetSampleSum(), quantile(0.99, h)
	}
	return m, nil
}

// filterMetrics keeps the lines of the families that are wanted, with their types.
func filterMetrics(body io.Reader) ([]byte, error) {
	families := []string{plegLastSeen, relistDuration, runtimeErrors, runningPods, processStart, connErrors}
	var out []byte
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxMetricsLine)
	for lines.Scan() {
		name := strings.TrimPrefix(lines.Text(), "# TYPE ")
		if slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(name, f) }) {
			out = append(append(out, lines.Bytes()...), '\n')
		}
		if len(out) > maxWanted {
			return nil, fmt.Errorf("more than %d bytes of a few families", maxWanted)
		}
	}
	return out, lines.Err()
}

// value is the sum of a family, which has one value in all that are read so.
func value(family *dto.MetricFamily) float64 {
	sum := 0.0
	for _, m := range family.GetMetric() {
		sum += number(m)
	}
	return sum
}

func number(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}

// instant is a time of the Unix epoch; zero for what is none.
func instant(seconds float64) time.Time {
	if !(seconds > 0 && seconds < math.MaxInt32*100) {
		return time.Time{}
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)).UTC()
}

// quantile estimates as Prometheus does: evenly spread within a bucket, and infinite above the last finite one, which
// for the relist is 10 s. It is 0 without samples.
func quantile(q float64, h *dto.Histogram) float64 {
	rank := q * float64(h.GetSampleCount())
	if !(rank > 0) {
		return 0
	}
	lower, below := 0.0, 0.0
	for _, b := range h.GetBucket() {
		upper, count := b.GetUpperBound(), float64(b.GetCumulativeCount())
		if count >= rank {
			if math.IsInf(upper, 1) || count <= below {
				return upper
			}
			return lower + (upper-lower)*(rank-below)/(count-below)
		}
		lower, below = upper, count
	}
	return math.Inf(1)
}
