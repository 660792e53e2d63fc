package render

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

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
