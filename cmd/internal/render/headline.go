package render

import (
	"cmp"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// simulation stands in the headline for a node that does not exist.
const simulation = "SIMULATION"

// headline writes the first lines: the verdict, the node, and why in a sentence or more.
func (p *page) headline(word span, host string, sentences ...string) {
	p.simulated = host == simulation
	hang := columns(word.text) + 2
	lead := []span{word, plain("  ")}
	switch host = p.prose(host); {
	case host == "":
	case columns(host) <= p.wrap/3:
		lead = append(lead, plain(host+"  "))
	default:
		p.flow(lead, hang, plain(host))
		lead = []span{plain(spaces(hang))}
	}
	for _, s := range sentences {
		p.flow(lead, hang, plain(s))
		lead = []span{plain(spaces(hang))}
	}
}

// where names the node, or that there is none.
func where(host string, r checks.Runtime) string {
	if r.EndpointSource == "simulated" {
		return simulation
	}
	return host
}

// verdict returns a verdict in capitals; a document without one has no answer.
func (c cleaner) verdict(v checks.Verdict) span {
	return span{strings.ToUpper(cmp.Or(c.prose(string(v)), string(checks.Unknown))), verdictInk(v)}
}

// sentence is the reason of the verdict: the first cause, else what kept kdiag from looking, else what was fine.
func (c cleaner) sentence(h checks.Header, causes []checks.Cause, fine string) string {
	switch {
	case len(causes) > 0:
		return c.prose(causes[0].Code + ": " + causes[0].Summary)
	case h.Status != checks.Healthy && len(h.Problems) > 0:
		return c.prose(h.Problems[0])
	case h.Status == checks.Healthy:
		return fine
	}
	return "no cause found"
}

// fineRelist adds how long a relist takes to what was found of a healthy node or runtime.
func fineRelist(found string, s *plegbench.Summary) string {
	if s == nil || s.ProjectedSeconds == nil || s.ThresholdSeconds <= 0 {
		return found
	}
	return found + "; a relist takes " + units.Seconds(*s.ProjectedSeconds) + " (limit " +
		units.Seconds(s.ThresholdSeconds) + ")"
}

// What is found of a node without a cause, and of a runtime alone.
const (
	fineNode    = "nothing found"
	fineRuntime = "runtime answers"
)

// runtime writes which runtime was asked, and why that one.
func (p *page) runtime(r checks.Runtime) {
	p.pair("runtime", p.runtimeName(r))
	text := p.prose(r.Endpoint)
	if why := cmp.Or(r.EndpointReason, r.EndpointSource); why != "" && text != "" {
		text += " (" + p.prose(why) + ")"
	}
	p.pair("endpoint", text)
}

// runtimeName returns such as "containerd v2.1.4 (CRI v1)"; empty when the runtime did not report it.
func (c cleaner) runtimeName(r checks.Runtime) string {
	name := c.prose(r.Name + " " + r.Version)
	if name != "" && r.APIVersion != "" {
		name += " (CRI" + glue + c.prose(r.APIVersion) + ")"
	}
	return name
}
