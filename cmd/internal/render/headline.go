package render

import (
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/plegbench"
)

// headline writes the first lines: the verdict, the node, and why in one sentence.
func (p *page) headline(v checks.Verdict, host, sentence string) {
	word := verdictWord(p.cleaner, v)
	hang := columns(word) + 2
	style := p.ink.verdict(v)
	lead := []span{{word, &style}, plain("  ")}
	switch host = p.prose(host); {
	case host == "":
	case columns(host) <= p.width/3:
		lead = append(lead, plain(host+"  "))
	default:
		p.flow(lead, hang, plain(host))
		lead = []span{plain(spaces(hang))}
	}
	p.flow(lead, hang, plain(sentence))
}

// where names the node, and says when the runtime is not one: the commands of a report are meant for a real node.
func where(host string, r checks.Runtime) string {
	if r.EndpointSource == "simulated" {
		return strings.TrimSpace(host + " (simulated)")
	}
	return host
}

// verdictWord returns a verdict in capitals; a document without one says that nothing is known.
func verdictWord(c cleaner, v checks.Verdict) string {
	if word := c.prose(string(v)); word != "" {
		return strings.ToUpper(word)
	}
	return strings.ToUpper(string(checks.Unknown))
}

// sentence says why the verdict is what it is: the first cause, else what kept kdiag from looking, else what was fine.
func sentence(c cleaner, v checks.Verdict, causes []checks.Cause, problems []string, fine string) string {
	switch {
	case len(causes) > 0:
		return c.prose(causes[0].Code + ": " + causes[0].Summary)
	case v != checks.Healthy && len(problems) > 0:
		return c.prose(problems[0])
	case v == checks.Healthy:
		return fine
	}
	return "no cause found"
}

// problems writes what kept kdiag from looking, except for the first when the headline has said it.
func (p *page) problems(v checks.Verdict, causes []checks.Cause, problems []string) {
	if len(causes) == 0 && v != checks.Healthy && len(problems) > 0 {
		problems = problems[1:]
	}
	if len(problems) == 0 {
		return
	}
	p.heading("What kdiag could not see")
	for _, s := range problems {
		p.item(2, plain("?"), p.prose(s))
	}
}

// What is said of a node without a cause, and of a runtime alone.
const (
	fineNode    = "nothing found"
	fineRuntime = "runtime answers"
)

// fineRelist says of a healthy node or runtime what a relist takes.
func fineRelist(found string, s *plegbench.Summary) string {
	if s == nil || s.ProjectedSeconds == nil || s.ThresholdSeconds <= 0 {
		return found
	}
	return found + "; a relist takes " + duration(*s.ProjectedSeconds) + " of the " +
		duration(s.ThresholdSeconds) + " it may take"
}

// runtime writes which runtime was asked, and why that one.
func (p *page) runtime(r checks.Runtime, label int) {
	p.pair("runtime", label, p.runtimeName(r))
	if r.Endpoint == "" {
		return
	}
	text := p.prose(r.Endpoint)
	switch {
	case r.EndpointReason != "":
		text += " (" + p.prose(r.EndpointReason) + ")"
	case r.EndpointSource != "":
		text += " (" + p.prose(r.EndpointSource) + ")"
	}
	p.pair("endpoint", label, text)
}

// runtimeName returns such as "containerd v2.1.4 (CRI v1)"; empty when the runtime did not say.
func (p *page) runtimeName(r checks.Runtime) string {
	name := p.prose(r.Name + " " + r.Version)
	if name != "" && r.APIVersion != "" {
		name += " (CRI" + glue + p.prose(r.APIVersion) + ")"
	}
	return name
}
