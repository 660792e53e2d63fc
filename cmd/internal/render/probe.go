package render

import (
	"strconv"

	"github.com/kdiag/kdiag/checks"
)

// probeBar is the width of the bars beside the latencies.
const probeBar = 12

// probe writes the answer of kdiag runtime.
func (p *page) probe(r *checks.RuntimeProbe) {
	p.headline(r.Status, where(r.Host, r.Runtime), sentence(p.cleaner, r.Status, r.Causes, r.Problems, p.fineProbe(r)))
	p.problems(r.Status, r.Causes, r.Problems)
	p.causes(r.Causes)
	if r.Runtime.Endpoint != "" {
		p.heading("Runtime")
	}
	p.runtime(r.Runtime, labelWidth)
	p.pair("connect", labelWidth, p.connect(r.Connect))
	p.conditions(r.Conditions)
	p.rpcs(r.RPCs)
}

func (p *page) fineProbe(r *checks.RuntimeProbe) string {
	name := p.runtimeName(r.Runtime)
	if name == "" {
		name = "the runtime"
	}
	answered := 0
	for _, c := range r.RPCs {
		if c.Code == "OK" {
			answered++
		}
	}
	return name + " answers " + count(answered) + " of " + plural(len(r.RPCs), "RPC")
}

func (p *page) connect(c checks.ConnectInfo) string {
	if c.State == "" {
		return ""
	}
	text := p.prose(c.State) + " in " + duration(c.Seconds)
	if c.Error != "" {
		text += ": " + p.prose(c.Error)
	}
	if q := c.Peer; q != nil {
		text += "; " + p.prose(q.Name) + " listens, pid" + glue + strconv.Itoa(q.PID)
		if q.State != "" {
			text += ", " + p.prose(q.State)
		}
		if q.Wchan != "" && q.Wchan != "0" {
			text += " in " + p.prose(q.Wchan)
		}
		if q.Age != "" {
			text += ", up " + p.prose(q.Age)
		}
	}
	return text
}

func (p *page) conditions(conditions []checks.Condition) {
	if len(conditions) == 0 {
		return
	}
	p.heading("Conditions")
	rows := make([][]span, 0, len(conditions))
	for _, c := range conditions {
		state := span{"false", &p.ink.bad}
		if c.Status {
			state = span{"true", &p.ink.good}
		}
		why := p.prose(c.Reason)
		if c.Message != "" {
			if why != "" {
				why += ": "
			}
			why += p.prose(c.Message)
		}
		rows = append(rows, []span{plain(p.prose(c.Type)), state, plain(why)})
	}
	p.table(table{indent: 2, align: "lll", rows: rows})
}

// rpcs writes each call with its latency, as number and bar; what the runtime said of a failed one stands below.
func (p *page) rpcs(rpcs []checks.RPC) {
	if len(rpcs) == 0 {
		return
	}
	p.heading("RPCs, each asked once")
	slowest := 0.0
	for _, c := range rpcs {
		slowest = max(slowest, c.Seconds)
	}
	t := table{indent: 2, align: "lrlrrl", head: []string{"name", "time", "", "size", "items", "outcome"}}
	for _, c := range rpcs {
		outcome := span{p.prose(c.Code), &p.ink.bad}
		if c.Code == "OK" {
			outcome.style = nil
		}
		t.rows = append(t.rows, []span{
			plain(p.prose(c.Name)), plain(duration(c.Seconds)), plain(p.glyph.bar(c.Seconds, slowest, probeBar)),
			plain(some(c.Bytes, func(n int) string { return size(float64(n)) })), plain(some(c.Items, count)), outcome,
		})
	}
	p.table(t)
	for _, c := range rpcs {
		if c.Error != "" {
			p.flow([]span{plain("  " + p.prose(c.Name) + ": ")}, 4, plain(p.prose(c.Error)))
		}
	}
}

// some prints a number, or a dash where the document leaves it out.
func some(n *int, print func(int) string) string {
	if n == nil {
		return "-"
	}
	return print(*n)
}
