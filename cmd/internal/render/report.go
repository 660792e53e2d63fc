package render

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// pleg writes the answer of kdiag pleg.
func (p *page) pleg(r *checks.Report) {
	p.report(r, "pleg --details")
	if p.details && r.Runtime.Endpoint != "" { // else no check asked a runtime
		p.blank()
		p.pair("checks", tally(r.Checks))
		p.checks(r.Checks, false)
	}
}

// node writes the answer of kdiag node, then the checks that are not ok, or all. Their number is always shown.
func (p *page) node(r *checks.Report, all bool) {
	const kept = 2
	p.short = true
	p.screen -= kept
	p.report(r, "node --details")
	p.screen += kept
	p.blank()
	if len(r.Checks) > 0 {
		p.pair("checks", tally(r.Checks))
	}
	p.checks(r.Checks, all)
}

// report writes a conclusion, and all that was measured where details are wanted.
func (p *page) report(r *checks.Report, more string) {
	p.conclude(conclusion{
		Header: r.Header, runtime: r.Runtime, causes: r.Causes, notes: recorded(r),
		fine: fineRelist(fineNode, r.Relist), looked: p.prose(p.runtimeName(r.Runtime) + " " + r.Runtime.Endpoint),
		more: more,
	})
	if !p.details {
		return
	}
	if s := r.Relist; s != nil {
		p.limits(s)
		p.heading("Measured")
		p.figures(s)
	} else {
		p.blank()
	}
	p.runtime(r.Runtime)
	if s := r.Relist; s != nil && s.Sweep != nil {
		p.histogram("Status calls by latency", s.Sweep.Histogram)
	}
}

// checks writes all checks, or those that found something or could not look, and of these those that found the same as
// one. They have a line each where there are no details.
func (p *page) checks(results []checks.Result, all bool) {
	var found []checks.Result
	for _, r := range results {
		same := func(f checks.Result) bool { return f.Status == r.Status && f.Summary == r.Summary }
		i := slices.IndexFunc(found, same)
		switch {
		case !all && (r.Status == checks.StatusOK || r.Status == checks.StatusSkipped):
		case i >= 0 && !all:
			found[i].ID += ", " + r.ID
		default:
			found = append(found, r)
		}
	}
	for _, r := range found {
		write := func() { p.check(r) }
		if all {
			write()
		} else {
			p.sections(write)
		}
	}
}

// check writes one check.
func (p *page) check(r checks.Result) {
	status := span{pad(p.prose(string(r.Status)), len(checks.StatusCritical)), statusInk(r.Status)}
	lead, text := []span{plain("  "), status, plain("  ")}, p.prose(r.ID+": "+r.Summary)
	if p.details {
		p.flow(lead, len(checks.StatusCritical)+4, plain(text))
	} else {
		p.oneLine(lead, plain(text))
	}
}

// tally counts checks by outcome, worst first.
func tally(results []checks.Result) string {
	counts := map[checks.Status]int{}
	for _, r := range results {
		counts[r.Status]++
	}
	var parts []string
	for _, s := range []checks.Status{
		checks.StatusCritical, checks.StatusWarning, checks.StatusUnknown, checks.StatusOK, checks.StatusSkipped,
	} {
		if n := counts[s]; n > 0 {
			parts = append(parts, units.Number(n)+" "+string(s))
		}
	}
	return strings.Join(parts, ", ")
}

// limits draws the figures that have a limit.
func (p *page) limits(s *plegbench.Summary) {
	p.heading("Against the kubelet's limits")
	if listsFail(s) {
		p.pair("relist", "times out after "+units.Seconds(*s.ProjectedSeconds)+"; PLEG turns unhealthy "+
			units.Seconds(s.ThresholdSeconds)+" after the last good one")
	}
	p.gauges(limited(s))
}

// limited returns what of a summary has a limit.
func limited(s *plegbench.Summary) []gauge {
	var all []gauge
	for _, g := range []figure{
		{label: "relist now", value: s.ProjectedSeconds},
		{label: "relist, kubelet 1.35 and older", value: s.OlderProjectedSeconds},
		{label: "relist in a rollout", value: s.ChurnSeconds},
		{label: "relist after kubelet restart", value: s.ColdSeconds},
		{label: "age that the kubelet logs", value: s.ProjectedAgeSeconds},
	} {
		if g.value != nil && !listsFail(s) {
			all = append(all, gauge{g.label, *g.value, s.ThresholdSeconds, units.Seconds})
		}
	}
	if s.ResponseBytes != nil {
		label := "list size"
		if s.ResponseTruncated {
			label += " >=" // a lower bound: part of the list is missing
		}
		all = append(all, gauge{label, float64(*s.ResponseBytes), float64(s.ResponseLimitBytes), size[float64]})
	}
	return all
}

// listsFail reports whether the relist that a summary projects comes to nothing: the lists hang, it costs time, and the
// age that it would stop does not end.
func listsFail(s *plegbench.Summary) bool {
	return s.ProjectedSeconds != nil && s.ProjectedAgeSeconds == nil
}

// figures writes the numbers that have no limit, one line each.
func (p *page) figures(s *plegbench.Summary) {
	if !listsFail(s) && s.ProjectedSeconds != nil {
		text := units.Seconds(*s.ProjectedSeconds) + " now"
		if s.ColdSeconds != nil {
			text += ", " + units.Seconds(*s.ColdSeconds) + " after a kubelet restart" + estimate(s.ColdRange)
		}
		p.pair("relist", text)
	}
	if s.ResponseBytes != nil {
		p.pair("list size", size(*s.ResponseBytes)+", limit "+size(s.ResponseLimitBytes))
	}
	if l := s.List; l != nil {
		p.pair("lists", quantiles(l.P50Seconds, l.P99Seconds, l.MaxSeconds)+" in "+units.Count(l.Samples, "relist")+
			countOf(l.Errors, "failed"))
	}
	if w := s.Sweep; w != nil && w.Total > 0 {
		text := units.Number(w.Inspected) + " of " + units.Number(w.Total) + " checked, " +
			units.Number(w.Hung) + " hung" + countOf(w.Failed, "failed") + "; " +
			quantiles(w.P50Seconds, w.P99Seconds, w.SlowestSeconds)
		if w.Inspected < w.Total && w.Reach != "" {
			text += "; " + p.prose(w.Reach[strings.Index(w.Reach, ":")+1:])
		}
		p.pair("statuses", text)
	}
	if c := s.Sandboxes; c != nil {
		p.pair("sandboxes", units.Number(c.Ready)+" ready, "+units.Number(c.NotReady)+" not ready")
	}
	if c := s.Containers; c != nil {
		p.pair("containers", units.Number(c.Running)+" running, "+units.Number(c.Exited)+" exited"+
			countOf(c.Created, "created")+countOf(c.Unknown, "unknown"))
	}
}

func quantiles(p50, p99, most *float64) string {
	if p50 == nil {
		return "none answered"
	}
	return "p50" + glue + seconds(p50) + ", p99" + glue + seconds(p99) + ", max" + glue + seconds(most)
}

// countOf returns such as ", 3 failed"; nothing for none.
func countOf(n int, what string) string {
	if n == 0 {
		return ""
	}
	return ", " + units.Number(n) + " " + what
}

// recorded returns the notes of a report, after what the agent recorded.
func recorded(r *checks.Report) []string {
	if r.Recorded == "" {
		return r.Notes
	}
	return append([]string{"recorded: " + r.Recorded + " (kdiag history)"}, r.Notes...)
}

// callBar is the width of the bars beside the latencies of calls.
const callBar = 12

// probe writes the answer of kdiag runtime.
func (p *page) probe(r *checks.RuntimeProbe) {
	p.short = true
	p.answer(r, "runtime", p.fineProbe(r))
	p.sections(func() {
		p.blank()
		p.runtime(r.Runtime)
		p.connect(r.Connect)
	}, func() { p.conditions(r) }, func() { p.rpcs(r.RPCs) })
}

func (p *page) conditions(r *checks.RuntimeProbe) {
	t := table{indent: 2, align: "lll"}
	for _, c := range r.Conditions {
		state := span{"false", bad}
		if c.Status {
			state = span{"true", good}
		}
		why := strings.Trim(c.Reason+": "+c.Message, ": ")
		t.rows = append(t.rows, []span{plain(p.prose(c.Type)), state, plain(p.prose(why))})
	}
	p.section("Conditions", t, len(r.Conditions))
}

func (c cleaner) fineProbe(r *checks.RuntimeProbe) string {
	answered := only(r.RPCs, func(c checks.RPC) bool { return c.Code == "OK" })
	calls := units.Number(len(answered)) + " of " + units.Count(len(r.RPCs), "RPC")
	return strings.TrimSpace(c.runtimeName(r.Runtime) + " answers " + calls)
}

// connect writes what the socket did, and which process listens on it.
func (p *page) connect(c checks.ConnectInfo) {
	if c.State == "" {
		return
	}
	text := p.prose(c.State) + " in " + units.Seconds(c.Seconds)
	if c.Error != "" {
		text += ": " + p.prose(c.Error)
	}
	if q := c.Peer; q != nil {
		text += "; " + p.prose(q.Name) + " listens, pid" + glue + strconv.Itoa(q.PID) + ", " + p.processState(*q)
	}
	p.pair("connect", text)
}

// rpcs writes each call with its latency, as number and bar; the errors stand below, each once.
func (p *page) rpcs(rpcs []checks.RPC) {
	slowest := slices.Max(append(each(rpcs, func(c checks.RPC) float64 { return c.Seconds }), 0))
	t := table{indent: 2, align: "lrlrrl", head: []string{"name", "time", "", "size", "items", "outcome"}}
	for _, c := range rpcs {
		bytes, items, ink := "-", "-", bad
		if c.Bytes != nil {
			bytes = size(*c.Bytes)
		}
		if c.Items != nil {
			items = units.Number(*c.Items)
		}
		if c.Code == "OK" {
			ink = ""
		}
		t.rows = append(t.rows, []span{
			plain(p.prose(c.Name)), plain(units.Seconds(c.Seconds)), plain(p.glyph.bar(c.Seconds, slowest, callBar)),
			plain(bytes), plain(items),
			{p.prose(c.Code), ink},
		})
	}
	p.section("RPCs (one call each)", t, len(rpcs))
	failed := map[string][]string{}
	for _, c := range rpcs {
		failed[c.Error] = append(failed[c.Error], c.Name)
	}
	delete(failed, "")
	for _, text := range slices.Sorted(maps.Keys(failed)) {
		p.flow([]span{plain("  ")}, 4, plain(p.prose(strings.Join(failed[text], ", ")+": "+text)))
	}
}

// benchmark writes the answer of kdiag relist.
func (p *page) benchmark(r, against *checks.RelistBenchmark) {
	const compared = 10 // rows of a comparison, which is always shown
	p.short = true
	if against != nil {
		p.screen, p.tight = p.screen-compared, true
	}
	p.answer(r, "relist", fineRelist(fineRuntime, r.Relist))
	if against != nil {
		p.comparison(r, against)
		p.screen += compared
	}
	s := r.Relist
	if s != nil {
		p.sections(func() { p.limits(s) })
	}
	p.sections(func() { p.histogram("Relists by latency", histogramOf(r.Samples)) }, func() { p.rpcTable(r.RPCs) })
	if s != nil {
		p.sections(func() { p.forecast(s, r.Forecast) }, func() {
			p.heading("Measured")
			p.figures(s)
		})
	}
	p.sections(func() { p.runtime(r.Runtime) })
}

// histogramOf counts answered relists by latency, in steps of 1, 2 and 5, and those without an answer.
func histogramOf(samples []checks.RelistSample) []plegbench.Bucket {
	var bounds []float64
	for _, decade := range []float64{0.0001, 0.001, 0.01, 0.1, 1, 10, 100} {
		bounds = append(bounds, decade, 2*decade, 5*decade)
	}
	buckets := make([]plegbench.Bucket, len(bounds)+1)
	for i := range bounds {
		buckets[i].LeSeconds = &bounds[i]
	}
	for _, s := range samples {
		i := 0
		for i < len(bounds) && (s.Seconds > bounds[i] || s.Error != "") {
			i++
		}
		buckets[i].Count++
	}
	return buckets
}

func (p *page) rpcTable(rpcs []plegbench.RPCSummary) {
	t := table{indent: 2, align: "lrrrrrr", head: []string{"name", "calls", "p50", "p90", "p99", "max", "errors"}}
	for _, c := range rpcs {
		t.add(p.prose(c.Name), units.Number(c.Count), seconds(c.P50Seconds), seconds(c.P90Seconds),
			seconds(c.P99Seconds), seconds(c.MaxSeconds), units.Number(c.Errors))
	}
	p.section("RPCs", t, len(rpcs))
}

// forecast writes when growth reaches a limit; nothing where no list arrived.
func (p *page) forecast(s *plegbench.Summary, f plegbench.Forecast) {
	if s.List == nil || s.List.P50Seconds == nil {
		return
	}
	p.heading("Forecast")
	reached := func(after *float64, limit string) string {
		if after == nil {
			return "stable"
		}
		return "reaches " + limit + " in " + units.Seconds(*after)
	}
	p.pair("list size", reached(f.SecondsToLimit, size(s.ResponseLimitBytes)))
	p.pair("relist", reached(f.SecondsToThreshold, "the limit of "+units.Seconds(s.ThresholdSeconds)))
	if f.BytesPerContainer != nil && f.ContainersAtLimit != nil {
		p.pair("capacity", units.Number(*f.ContainersAtLimit)+" containers of "+size(*f.BytesPerContainer)+" each")
	}
}

// estimate returns the range of a figure that part of the objects was asked for; nothing where all were.
func estimate(r *plegbench.Range) string {
	if r == nil || r.Low == r.High {
		return ""
	}
	return " (estimated: " + units.Seconds(r.Low) + " to " + units.Seconds(r.High) + ")"
}

// comparison writes two benchmarks side by side.
func (p *page) comparison(now, then *checks.RelistBenchmark) {
	p.heading("Compared with " + p.prose(then.Host) + " at " + then.GeneratedAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	t := table{indent: 2, align: "lrrr", head: []string{"", "then", "now", "ratio"}}
	before := figuresOf(then)
	for i, f := range figuresOf(now) {
		if p.folds() && f.least == 0 && before[i].text() == f.text() {
			continue // a count that is the same explains nothing
		}
		ratio := "-"
		if was := before[i].value; was != nil && f.value != nil && *was > f.least {
			ratio = fmt.Sprintf("%.1fx", min(*f.value / *was, 1e6))
		}
		t.add(f.label, before[i].text(), f.text(), ratio)
	}
	p.table(t)
}

// A figure is one number of a benchmark; nil when it was not measured.
type figure struct {
	label string
	value *float64
	print func(float64) string
	least float64 // value from which a ratio to it means something
}

func (f figure) text() string {
	if f.value == nil {
		return "-"
	}
	return f.print(*f.value)
}

// figuresOf returns the figures by which benchmarks are compared, always the same ones in the same order.
func figuresOf(r *checks.RelistBenchmark) []figure {
	var s plegbench.Summary
	if r.Relist != nil {
		s = *r.Relist
	}
	var list plegbench.ListSummary
	if s.List != nil {
		list = *s.List
	}
	var running, exited, bytes *float64
	if c := s.Containers; c != nil {
		running, exited = new(float64(c.Running)), new(float64(c.Exited))
	}
	if s.ResponseBytes != nil {
		bytes = new(float64(*s.ResponseBytes))
	}
	number := func(v float64) string { return units.Number(int(v)) }
	const noise = 0.05 // seconds: what is quicker differs by as much from one look to the next
	return []figure{
		{"relist p50", list.P50Seconds, units.Seconds, noise},
		{"relist p99", list.P99Seconds, units.Seconds, noise},
		{"relist projected", s.ProjectedSeconds, units.Seconds, noise},
		{"relist after a kubelet restart", s.ColdSeconds, units.Seconds, noise},
		{"list size", bytes, size[float64], 0},
		{"containers running", running, number, 0},
		{"containers exited", exited, number, 0},
	}
}

// bar draws v to a scale on which full takes width columns. What is more than nothing shows at least half a block.
func (g glyphs) bar(v, full float64, width int) string {
	if v <= 0 || full <= 0 || width < 1 {
		return ""
	}
	halves := max(1, int(math.Round(min(v/full, 1)*float64(width)*2)))
	return strings.Repeat(g.full, halves/2) + strings.Repeat(g.half, halves%2)
}

// limitBar draws a share of a limit, linearly, in width columns. The limit is marked at three quarters of them, so
// that what is over it can be seen to be over, and bars under one another compare. It returns the part up to the mark
// and the part beyond.
func (g glyphs) limitBar(share float64, width int) (under, beyond string) {
	below := width * 3 / 4
	above := width - below - 1
	halves := int(min(max(share, 0), 1) * float64(below) * 2)
	under = strings.Repeat(g.full, halves/2) + strings.Repeat(g.half, halves%2)
	under += strings.Repeat(g.track, below-(halves+1)/2) + g.mark
	if share <= 1 {
		return under, ""
	}
	if over := math.Ceil((share - 1) * float64(below)); over <= float64(above) {
		return under, strings.Repeat(g.over, int(over))
	}
	return under, strings.Repeat(g.over, above-1) + ">"
}

// A gauge is one figure and the limit that it is held against.
type gauge struct {
	label        string
	value, limit float64
	print        func(float64) string
}

// share is how much of its limit a gauge uses; 0 without a limit.
func (g gauge) share() float64 {
	if g.limit <= 0 {
		return 0
	}
	return g.value / g.limit
}

// ofLimit returns such as "69% of 3m"; empty without a limit.
func (g gauge) ofLimit() string {
	if g.limit <= 0 {
		return ""
	}
	return padLeft(units.Percent(g.share()), 4) + " of " + g.print(g.limit)
}

// gauges draws figures to one scale, on which all limits are at the same mark.
func (p *page) gauges(all []gauge) {
	const shortest, longest = 12, 40
	var labels, values, limits int
	for _, g := range all {
		labels, values = max(labels, columns(g.label)), max(values, columns(g.print(g.value)))
		limits = max(limits, columns(g.ofLimit()))
	}
	width := min(p.width-2-labels-2-values-2-2-limits, longest)
	for _, g := range all {
		if width < shortest {
			p.pair(g.label, g.print(g.value)+", "+g.ofLimit())
			continue
		}
		under, beyond := p.glyph.limitBar(g.share(), width)
		p.put(plain("  "+pad(g.label, labels)+"  "+padLeft(g.print(g.value), values)+"  "),
			plain(under), span{beyond, bad}, plain(spaces(width-columns(under+beyond))+"  "+g.ofLimit()))
	}
}

// histogram draws counts by latency as horizontal bars. Empty buckets before the first and after the last are left out,
// and a row of empty ones in between becomes one line.
func (p *page) histogram(title string, buckets []plegbench.Bucket) {
	first, last, most := len(buckets), -1, 0
	for i, b := range buckets {
		if b.Count > 0 {
			first, last, most = min(first, i), i, max(most, b.Count)
		}
	}
	t := table{indent: 2, align: "rrl"}
	for i := first; i <= last; i++ {
		b := buckets[i]
		switch bar := p.glyph.bar(float64(b.Count), float64(most), min(40, p.width/2)); {
		case b.Count == 0 && buckets[i-1].Count == 0:
		case b.Count == 0 && buckets[i+1].Count == 0:
			t.add("...", "", "")
		case b.LeSeconds == nil:
			t.rows = append(t.rows, []span{plain("no answer"), plain(units.Number(b.Count)), {bar, bad}})
		default:
			t.add(between(buckets, i), units.Number(b.Count), bar)
		}
	}
	p.section(title, t, len(t.rows))
}

// between returns the latencies of a bucket, such as "2 to 5ms".
func between(buckets []plegbench.Bucket, i int) string {
	to := units.Seconds(*buckets[i].LeSeconds)
	if i == 0 {
		return "under " + to
	}
	return units.Seconds(*buckets[i-1].LeSeconds) + " to " + to
}
