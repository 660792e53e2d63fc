package render

import (
	"math"

	"github.com/kdiag/kdiag/checks"
)

// A change is one figure of two benchmarks.
type change struct {
	label     string
	then, now *float64 // nil when not measured
	print     func(float64) string
}

// comparison writes two benchmarks side by side, and what differs most.
func (p *page) comparison(r, against *checks.RelistBenchmark) {
	if against == nil {
		return
	}
	p.heading("Compared with " + p.prose(against.Host) + " at " + clock(against.GeneratedAt))
	all := changes(r, against)
	if most, ok := largest(all); ok {
		text := most.label + " changed most: " + most.print(*most.then) + " " + p.glyph.rise + " " + most.print(*most.now)
		if *most.then > 0 {
			text += " (" + times(*most.now / *most.then) + ")"
		}
		p.flow([]span{plain("  ")}, 2, plain(text))
		p.blank()
	}
	then, now := "before", "now"
	if against.Host != r.Host {
		then, now = p.columnName(against.Host), p.columnName(r.Host)
	}
	t := table{indent: 2, align: "lrrr", head: []string{"", then, now, "ratio"}}
	for _, c := range all {
		ratio := "-"
		switch {
		case c.then == nil || c.now == nil:
		case *c.then == *c.now:
			ratio = "same"
		case *c.then > 0:
			ratio = times(*c.now / *c.then)
		}
		t.rows = append(t.rows, []span{
			plain(c.label), plain(optional(c.then, c.print)), plain(optional(c.now, c.print)), plain(ratio),
		})
	}
	p.table(t)
}

// columnName cuts a host's name to what fits above a column.
func (p *page) columnName(host string) string {
	const width = 16
	host = p.prose(host)
	if columns(host) <= width {
		return host
	}
	cut, _ := head(host, width-2, len(host))
	return cut + ".."
}

func changes(r, against *checks.RelistBenchmark) []change {
	now, then := figuresOf(r), figuresOf(against)
	whole := func(v float64) string { return count(int(v)) }
	list := []change{
		{label: "relist p50", print: duration},
		{label: "relist p99", print: duration},
		{label: "relist max", print: duration},
		{label: "relist projected", print: duration},
		{label: "relist after a restart", print: duration},
		{label: "status p99", print: duration},
		{label: "list size", print: size},
		{label: "bytes per container", print: size},
		{label: "sandboxes", print: whole},
		{label: "containers running", print: whole},
		{label: "containers exited", print: whole},
	}
	for i := range list {
		list[i].then, list[i].now = then[i], now[i]
	}
	return list
}

// figuresOf returns the figures of a benchmark in the order of changes.
func figuresOf(r *checks.RelistBenchmark) [11]*float64 {
	var f [11]*float64
	s := r.Relist
	if s == nil {
		return f
	}
	float := func(n int) *float64 { v := float64(n); return &v }
	if l := s.List; l != nil {
		f[0], f[1], f[2] = l.P50Seconds, l.P99Seconds, l.MaxSeconds
	}
	f[3], f[4] = s.ProjectedSeconds, s.ColdSeconds
	if s.Sweep != nil {
		f[5] = s.Sweep.P99Seconds
	}
	if s.ResponseBytes != nil {
		f[6] = float(*s.ResponseBytes)
	}
	f[7] = s.BytesPerContainer
	if c := s.Sandboxes; c != nil {
		f[8] = float(c.Ready + c.NotReady)
	}
	if c := s.Containers; c != nil {
		f[9], f[10] = float(c.Running), float(c.Exited)
	}
	return f
}

// largest returns the change with the largest factor, up or down; one from nothing counts as if from one unit.
func largest(all []change) (change, bool) {
	var most change
	best := 0.0
	for _, c := range all {
		if c.then == nil || c.now == nil || *c.then < 0 || *c.now < 0 || *c.then == *c.now {
			continue
		}
		then, now := *c.then, *c.now
		if then == 0 || now == 0 {
			then, now = then+1, now+1
		}
		if factor := math.Abs(math.Log(now / then)); factor > best {
			most, best = c, factor
		}
	}
	return most, best > 0
}
