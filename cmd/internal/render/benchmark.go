package render

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

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
