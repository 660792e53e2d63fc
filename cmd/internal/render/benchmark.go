package render

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/plegbench"
)

// benchmark writes the answer of kdiag relist.
func (p *page) benchmark(r, against *checks.RelistBenchmark) {
	p.headline(r.Status, where(r.Host, r.Runtime), sentence(p.cleaner, r.Status, r.Causes, r.Problems,
		fineRelist(fineRuntime, r.Relist)))
	p.problems(r.Status, r.Causes, r.Problems)
	p.causes(r.Causes)
	p.comparison(r, against)
	p.series(r.Samples)
	p.histogram("Relists by latency", histogramOf(r.Samples))
	p.rpcTable(r.RPCs)
	far := farFromLimits(r.Relist)
	if !far {
		p.limits("Against the kubelet's limits", r.Relist)
	}
	p.forecast(r.Relist, r.Forecast)
	p.heading("Measured")
	if r.Relist != nil {
		s := *r.Relist
		s.BytesPerContainer = nil // the forecast has it
		if far {
			p.reach(&s)
		}
		p.figures(&s)
	}
	p.runtime(r.Runtime, labelWidth)
	if r.Runtime.Endpoint != "" && r.Runtime.EndpointSource != "simulated" {
		p.pair("kubelet", labelWidth, "its own state was not looked at: kdiag pleg does")
	}
}

// series draws the relists over time.
func (p *page) series(samples []checks.RelistSample) {
	if len(samples) == 0 {
		return
	}
	values := make([]float64, len(samples))
	low, high, failed := -1.0, -1.0, 0
	for i, s := range samples {
		if s.Error != "" {
			values[i] = -1
			failed++
			continue
		}
		values[i] = s.Seconds
		high = max(high, s.Seconds)
		if low < 0 || s.Seconds < low {
			low = s.Seconds
		}
	}
	p.heading("Relists over time")
	p.flow([]span{plain("  ")}, 2, plain(p.glyph.series(values, p.width-2)))
	text := plural(len(samples), "relist")
	if span := samples[len(samples)-1].At.Sub(samples[0].At).Seconds(); span > 0 {
		text += " in " + duration(span)
	}
	if high >= 0 {
		text += "; min " + duration(low) + ", max " + duration(high)
	}
	if failed > 0 {
		text += ", " + count(failed) + " failed (" + string(p.glyph.lost) + ")"
	}
	p.flow([]span{plain("  ")}, 2, plain(text))
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
	if len(rpcs) == 0 {
		return
	}
	p.heading("RPCs")
	t := table{indent: 2, align: "lrrrrrr", head: []string{"name", "calls", "p50", "p90", "p99", "max", "errors"}}
	for _, c := range rpcs {
		errors := span{text: count(c.Errors)}
		if c.Errors > 0 {
			errors.style = &p.ink.bad
		}
		t.rows = append(t.rows, []span{
			plain(p.prose(c.Name)), plain(count(c.Count)), plain(optional(c.P50Seconds, duration)),
			plain(optional(c.P90Seconds, duration)), plain(optional(c.P99Seconds, duration)),
			plain(optional(c.MaxSeconds, duration)), errors,
		})
	}
	p.table(t)
}

// forecast writes when a limit will be reached at today's growth; nothing where no list came that could grow.
func (p *page) forecast(s *plegbench.Summary, f plegbench.Forecast) {
	if s == nil || s.List == nil || s.List.P50Seconds == nil {
		return
	}
	p.heading("At today's growth")
	limit := size(float64(s.ResponseLimitBytes))
	const label = 9
	p.pair("list size", label, reached(f.SecondsToLimit, limit)+growth(f.BytesPerSecond))
	p.pair("relist", label, reached(f.SecondsToThreshold, "the threshold of "+duration(s.ThresholdSeconds)))
	if f.BytesPerContainer == nil || f.ContainersAtLimit == nil {
		return
	}
	text := size(*f.BytesPerContainer) + " per container; " + count(*f.ContainersAtLimit) + " containers fill " + limit
	if c := s.Containers; c != nil {
		text += ", now " + count(c.Created+c.Running+c.Exited+c.Unknown)
	}
	p.pair("room", label, text)
}

func reached(seconds *float64, limit string) string {
	if seconds == nil {
		return "not growing towards " + limit
	}
	return "reaches " + limit + " in " + duration(*seconds)
}

func growth(bytesPerSecond *float64) string {
	if bytesPerSecond == nil || *bytesPerSecond <= 0 {
		return ""
	}
	return ", growing by " + size(*bytesPerSecond) + "/s"
}
