package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// The metrics about PLEG (pkg/kubelet/metrics/metrics.go upstream).
const (
	plegLastSeen  = "kubelet_pleg_last_seen_seconds"
	relistCount   = "kubelet_pleg_relist_duration_seconds_count"
	relistSeconds = "kubelet_pleg_relist_duration_seconds_sum"
)

var (
	plegMetric = lazyregexp.New(
		`(?m)^(` + plegLastSeen + `|` + relistCount + `|` + relistSeconds + `) +(\S+)`)
	buildInfo = lazyregexp.New(`(?m)^kubernetes_build_info\{.*git_version="([^"]*)"`)
)

// parseMetrics reads a few numbers out of the text format, in which each has its line.
func parseMetrics(body []byte) (*Metrics, error) {
	if !bytes.Contains(body, []byte("\nkubelet_")) {
		return nil, errors.New("reading the kubelet's metrics: none is a kubelet's")
	}
	values := map[string]float64{}
	for _, line := range plegMetric.FindAllSubmatch(body, -1) {
		n, err := strconv.ParseFloat(string(line[2]), 64)
		if err != nil {
			return nil, fmt.Errorf("reading the kubelet's metrics: malformed line %.80q", line[0])
		}
		values[string(line[1])] = n
	}
	m := &Metrics{Relists: uint64(max(0, values[relistCount])), RelistSeconds: values[relistSeconds]}
	if git := buildInfo.FindSubmatch(body); git != nil {
		m.Version = string(git[1])
	}
	if seen := values[plegLastSeen]; seen > 0 && seen < math.MaxInt32*100 {
		m.PLEGLastSeen = time.UnixMilli(int64(seen * 1000)).UTC()
	}
	return m, nil
}
