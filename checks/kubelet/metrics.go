package kubelet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// The metrics about PLEG (pkg/kubelet/metrics/metrics.go upstream), and the one whose labels have the version.
const (
	buildInfo     = "kubernetes_build_info{"
	plegLastSeen  = "kubelet_pleg_last_seen_seconds"
	relistCount   = "kubelet_pleg_relist_duration_seconds_count"
	relistSeconds = "kubelet_pleg_relist_duration_seconds_sum"
)

const maxMetricsLine = 64 << 10

// parseMetrics reads a few numbers out of the text format, in which each has a line of its own. All other lines are
// passed over as they arrive.
func parseMetrics(body io.Reader) (*Metrics, error) {
	values, isKubelet, version := map[string]float64{}, false, ""
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxMetricsLine)
	for lines.Scan() {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		if bytes.HasPrefix(name, []byte(buildInfo)) {
			_, rest, _ := bytes.Cut(name, []byte(`git_version="`))
			git, _, _ := bytes.Cut(rest, []byte(`"`))
			version = string(git)
		}
		if !bytes.HasPrefix(name, []byte("kubelet_")) {
			continue
		}
		isKubelet = true
		switch string(name) {
		case plegLastSeen, relistCount, relistSeconds:
			n, err := strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
			if err != nil {
				return nil, fmt.Errorf("reading the kubelet's metrics: malformed line %.80q", lines.Text())
			}
			values[string(name)] = n
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the kubelet's metrics: %w", err)
	}
	if !isKubelet {
		return nil, errors.New("reading the kubelet's metrics: none is a kubelet's")
	}
	m := &Metrics{Version: version, Relists: uint64(max(0, values[relistCount])), RelistSeconds: values[relistSeconds]}
	if seen := values[plegLastSeen]; seen > 0 && seen < math.MaxInt32*100 {
		m.PLEGLastSeen = time.UnixMilli(int64(seen * 1000)).UTC()
	}
	return m, nil
}
