// Package agent exports the state of a node: as metrics, and as a condition and events of its Node object.
package agent

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// The gauges. All are of one observation. A gauge without a measurement is absent, as in a Report: an earlier value
// would pass for a measurement, and NaN would spoil sums over nodes.
var (
	descBuildInfo = descGauge("build_info", "1, with the versions of kdiag and Go.", "version", "goversion")
	descRepair    = descGauge("repair_action",
		"1 for the action that ends the root cause, None without a critical cause; 0 "+
			"for the others.", "action")
	descStatus = descGauge("status", "1 for the present status of the node, 0 for the others.", "status")
	descCause  = descGauge("cause", "Confidence of each active cause, from 0 to 1; 0 when it is not active.",
		"code", "severity")
	descCheckStatus = descGauge("check_status",
		"Outcome of each check: 0 ok, 1 warning, 2 critical, 3 unknown, 4 skipped.", "check")
	descProjected = descGauge("relist_projected_seconds", "Time that a relist of the kubelet would take now.")
	descCold      = descGauge("relist_cold_seconds",
		"Time that a relist would take with every pod inspected, as after a restart of the kubelet.")
	descThreshold = descGauge("pleg_threshold_seconds",
		"Age of the last relist at which the kubelet reports PLEG as not healthy.")
	descContainers  = descGauge("containers", "Containers in the runtime, by CRI state.", "state")
	descSandboxes   = descGauge("sandboxes", "Pod sandboxes in the runtime, by CRI state.", "state")
	descListBytes   = descGauge("list_bytes", "Size of each whole list as one gRPC message.", "method")
	descListLimit   = descGauge("list_limit_bytes", "Largest gRPC message that the kubelet receives.")
	descRunDuration = descGauge("run_duration_seconds", "Time that the last look took.")
	descLastRun     = descGauge("last_run_timestamp_seconds", "Unix time of the last look's report.")
)

// descGauge describes a gauge by its name without the prefix.
func descGauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kdiag_"+name, help, labels, nil)
}

// The results of an observation.
const (
	runComplete    = "complete"
	runInterrupted = "interrupted" // ended before all was measured
	runUnknown     = "unknown"     // no runtime was found, or no permission
)

// Metrics are the metrics of the agent. They may be used by several goroutines; Record by one at a time.
type Metrics struct {
	node    *prometheus.Registry // of the node; the textfile has no more
	process *prometheus.Registry // of the agent's process and the Go runtime
	gauges  gauges

	replies                       *prometheus.HistogramVec
	hung, records, runs, captures *prometheus.CounterVec
	uploads                       *prometheus.CounterVec // nil without Uploads

	version string
	compact bool
	checks  []string // ids

	logsRead bool
	seen     map[string]journal.Count // of the last reading of the logs, by signature
}

// NewMetrics returns the metrics, with every cause and check at its least value. Compact ones, for large fleets, are
// the status, the active causes, the projected relist, its threshold, calls that hung, and when the agent last looked.
func NewMetrics(version string, compact bool) *Metrics {
	m := &Metrics{
		node: prometheus.NewRegistry(), process: prometheus.NewRegistry(), version: version, compact: compact,
		seen: map[string]journal.Count{},
	}
	m.node.MustRegister(&m.gauges)
	with := promauto.With(m.node)
	if compact {
		with = promauto.With(nil) // which registers nothing
	} else {
		m.process.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	m.replies = with.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kdiag_rpc_duration_seconds", Help: "Time until the runtime replied, by CRI method.",
		// A healthy runtime replies within a few milliseconds, kdiag gives a call up after 5 seconds unless told
		// otherwise, and the kubelet after 120.
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		// Each bucket is 10 % wider than the one before. 100 of them span a factor of 13,000.
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"method"})
	counter := func(name, help, label string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Name: "kdiag_" + name, Help: help}, []string{label})
	}
	m.hung = counter("rpc_hung_total", "Calls without a reply by --rpc-timeout.", "method")
	if compact {
		m.node.MustRegister(m.hung)
	}
	m.records = counter("journal_records_total",
		"Records of the node's logs since the agent started, by signature.", "signature")
	m.runs = counter("runs_total", "Looks of the agent, by result: complete, interrupted or unknown.", "result")
	m.captures = counter("captures_total", "Evidence archives written, by cause.", "cause")

	// A counter that first appears with its first event has no increase that a query could see.
	for _, method := range []string{
		facts.RPCVersion, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers, "PodSandboxStatus",
		"ContainerStatus", facts.RPCImages, facts.RPCImageFs,
	} {
		m.replies.WithLabelValues(method)
		m.hung.WithLabelValues(method)
	}
	for _, s := range signature.Catalogue() {
		m.records.WithLabelValues(s.Code)
	}
	for _, result := range []string{runComplete, runInterrupted, runUnknown} {
		m.runs.WithLabelValues(result)
	}
	for _, d := range causes.All() {
		m.captures.WithLabelValues(d.Code)
	}
	nothing := judge.NewReport(checks.Header{}, nil)
	for i := range nothing.Checks {
		nothing.Checks[i].Status = checks.StatusUnknown
		m.checks = append(m.checks, nothing.Checks[i].ID)
	}
	m.show(m.measure(nothing))
	return m
}

// Call counts a call that ended, or was found to hang. A call that hung and was answered at last is counted twice: as
// hung, and with the time until the reply. The histogram has no calls without a reply.
func (m *Metrics) Call(c crictl.Call) {
	switch c.Code {
	case crictl.DeadlineExceeded:
		m.hung.WithLabelValues(c.Method).Inc()
	case crictl.Canceled, crictl.Unavailable: // cut short by the agent's end, or not connected
	default:
		m.replies.WithLabelValues(c.Method).Observe(c.Elapsed.Seconds())
	}
}

// Record sets the metrics from a report and the facts behind it.
func (m *Metrics) Record(r *checks.Report, in *facts.Input, took time.Duration) {
	result := runComplete
	switch {
	case in.Measurement != nil && in.Measurement.Interrupted != "":
		result = runInterrupted
	case r.Status == checks.Unknown:
		result = runUnknown
	}
	m.runs.WithLabelValues(result).Inc()
	m.countRecords(in.Journal)
	list := m.measure(r)
	list.add(descRunDuration, took.Seconds())
	list.add(descLastRun, float64(r.GeneratedAt.UnixMilli())/1000)
	if in.Measurement != nil {
		list.addLists(in.Measurement, r.Relist)
	}
	m.show(list)
}

// show has the gauges of a list served from now on.
func (m *Metrics) show(list gaugeList) {
	if m.compact {
		few := []*prometheus.Desc{descBuildInfo, descStatus, descCause, descProjected, descThreshold, descLastRun}
		list = slices.DeleteFunc(list, func(g prometheus.Metric) bool { return !slices.Contains(few, g.Desc()) })
	}
	m.gauges.last.Store(&list)
}

// measure returns the gauges of a report.
func (m *Metrics) measure(r *checks.Report) gaugeList {
	var list gaugeList
	list.add(descBuildInfo, 1, m.version, runtime.Version())
	present := map[checks.Verdict]float64{r.Status: 1}
	for _, v := range []checks.Verdict{checks.Healthy, checks.Degraded, checks.Unhealthy, checks.Unknown} {
		list.add(descStatus, present[v], string(v))
	}
	repair := conditionsOf(r)[1].Reason
	for _, a := range checks.Actions() {
		list.add(descRepair, map[string]float64{repair: 1}[string(a)], string(a))
	}
	active := map[[2]string]float64{}
	for _, c := range r.Causes {
		active[[2]string{c.Code, string(c.Severity)}] = c.Confidence
	}
	for _, d := range causes.All() {
		for _, severity := range []string{string(checks.Critical), string(checks.Warning)} {
			if confidence := active[[2]string{d.Code, severity}]; confidence > 0 || !m.compact {
				list.add(descCause, confidence, d.Code, severity)
			}
		}
	}
	outcomes := map[string]checks.Status{}
	for _, c := range r.Checks {
		outcomes[c.ID] = c.Status
	}
	statuses := []checks.Status{
		checks.StatusOK, checks.StatusWarning, checks.StatusCritical, checks.StatusUnknown, checks.StatusSkipped,
	}
	for _, id := range m.checks {
		outcome := cmp.Or(outcomes[id], checks.StatusSkipped) // a report has no line for a probe that was left out
		list.add(descCheckStatus, float64(slices.Index(statuses, outcome)), id)
	}
	if s := r.Relist; s != nil {
		list.addSummary(s)
	}
	return list
}

// countRecords adds the records that are new since the last reading of the logs. Each reading has the records of the
// last minutes only, so old ones leave as new ones come. If the first record is the same, none has left; if it is newer
// than all of the last reading, all have left. In between, the records of the last reading count as evenly spaced.
// Records from before the first reading are not counted.
func (m *Metrics) countRecords(r *journal.Report) {
	if r == nil {
		return // the logs could not be read
	}
	for _, c := range r.Signatures {
		if m.logsRead {
			m.records.WithLabelValues(c.Code).Add(float64(newRecords(m.seen[c.Code], c)))
		}
		m.seen[c.Code] = journal.Count{Count: c.Count, First: c.First, Last: c.Last}
	}
	m.logsRead = true
}

// newRecords returns how many records of a signature are in now and were not in before.
func newRecords(before, now journal.Count) int64 {
	left := int64(0) // records that are in before only
	timed := before.First != nil && before.Last != nil && now.First != nil && now.Last != nil
	switch {
	case !timed || !now.First.After(*before.First):
	case now.First.After(*before.Last):
		left = before.Count
	case !now.Last.After(*before.Last):
		return 0
	default:
		span := before.Last.Sub(*before.First)
		share := now.First.Sub(*before.First).Seconds() / span.Seconds()
		left = max(int64(math.Round(float64(before.Count-1)*share)), 1)
	}
	return max(now.Count-before.Count+left, 0)
}

// Captured counts an archive that was written.
func (m *Metrics) Captured(cause string) { m.captures.WithLabelValues(cause).Inc() }

// Uploads adds the metrics of uploads. Pending returns how many archives wait.
func (m *Metrics) Uploads(pending func() int) {
	with := promauto.With(m.node)
	m.uploads = with.NewCounterVec(prometheus.CounterOpts{
		Name: "kdiag_uploads_total", Help: "Archives that were uploaded, or given up, by result: ok or failed.",
	}, []string{"result"})
	m.uploads.WithLabelValues("ok")
	m.uploads.WithLabelValues("failed")
	with.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kdiag_uploads_pending", Help: "Archives that wait to be uploaded.",
	}, func() float64 { return float64(pending()) })
}

// Uploaded counts an archive that was uploaded, or given up.
func (m *Metrics) Uploaded(ok bool) {
	result := "failed"
	if ok {
		result = "ok"
	}
	m.uploads.WithLabelValues(result).Inc()
}

// Handler serves them, in the text format, OpenMetrics, and Prometheus' binary format, which has the native histograms.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(prometheus.Gatherers{m.node, m.process}, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		// 34 KiB twice a minute are not worth the CPU time of compression.
		DisableCompression:  true,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}

// WriteTextfile writes kdiag.prom into a folder of node_exporter, as a whole or not at all.
func (m *Metrics) WriteTextfile(dir string) error {
	if err := prometheus.WriteToTextfile(filepath.Join(dir, "kdiag.prom"), m.node); err != nil {
		return fmt.Errorf("writing metrics for node_exporter: %w", err)
	}
	return nil
}

// A gaugeList is gauges as they are made.
type gaugeList []prometheus.Metric

func (l *gaugeList) add(desc *prometheus.Desc, value float64, labels ...string) {
	*l = append(*l, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...))
}

// addSummary adds the figures of a relist.
func (l *gaugeList) addSummary(s *plegbench.Summary) {
	l.add(descThreshold, s.ThresholdSeconds)
	l.add(descListLimit, float64(s.ResponseLimitBytes))
	if s.ProjectedSeconds != nil {
		l.add(descProjected, *s.ProjectedSeconds)
	}
	if s.ColdSeconds != nil {
		l.add(descCold, *s.ColdSeconds)
	}
	if c := s.Containers; c != nil {
		l.add(descContainers, float64(c.Created), "created")
		l.add(descContainers, float64(c.Running), "running")
		l.add(descContainers, float64(c.Exited), "exited")
		l.add(descContainers, float64(c.Unknown), "unknown")
	}
	if c := s.Sandboxes; c != nil {
		l.add(descSandboxes, float64(c.Ready), "ready")
		l.add(descSandboxes, float64(c.NotReady), "notready")
	}
}

// addLists adds the sizes of whole lists, and of one that was refused for its size.
func (l *gaugeList) addLists(m *plegbench.Measurement, s *plegbench.Summary) {
	sizes := map[string]int{}
	if m.Sandboxes != nil && m.Sandboxes.Complete {
		sizes[facts.RPCSandboxes] = m.Sandboxes.Bytes
	}
	if m.Containers != nil && m.Containers.Complete {
		sizes[facts.RPCContainers] = m.Containers.Bytes
	}
	if s != nil && s.ResponseBytes != nil && !s.ResponseTruncated {
		sizes[s.ResponseRPC] = *s.ResponseBytes
	}
	for method, n := range sizes {
		l.add(descListBytes, float64(n), method)
	}
}

// gauges collects the gauges of the last observation, so that a scrape never mixes two.
type gauges struct{ last atomic.Pointer[gaugeList] }

// Describe is part of prometheus.Collector. It describes nothing, as gauges come and go.
func (g *gauges) Describe(chan<- *prometheus.Desc) {}

// Collect is part of prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	for _, metric := range *g.last.Load() {
		ch <- metric
	}
}
