package proxycmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// A printer writes the messages of a running proxy. Write errors are ignored.
type printer struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, format+"\n", args...)
}

// begin prints where the proxy listens, how to use it, and what it will do.
func (p *printer) begin(listen string, behind crictl.Endpoint, plan plan) {
	p.printf("kdiag: proxy on %s, in front of %s (%s)", listen, behind.URL, behind.Reason)
	p.printf("  crictl:  crictl --runtime-endpoint %s ps", listen)
	p.printf("  kubelet: containerRuntimeEndpoint: %s in its configuration file, or --container-runtime-endpoint=%s; then restart it", listen, listen)
	if plan.name != "" {
		p.printf("  scenario %s", plan.name)
	}
	if plan.pods {
		p.printf("  the scenario's pods are not used: faults apply to the runtime's own pods by name")
	}
	if plan.down {
		p.printf("  nothing listens: connections are refused")
	}
	for i, f := range plan.Faults {
		p.printf("  fault %d: %s", i+1, fault.Format(f))
	}
	for _, l := range plan.Latency {
		p.printf("  latency of %s: %s", l.RPC, latency(l))
	}
	for _, c := range plan.Conditions {
		p.printf("  condition %s=%t %s", c.Type, c.Status, strings.TrimSpace(c.Reason+" "+c.Message))
	}
	if len(plan.Faults)+len(plan.Latency)+len(plan.Conditions) == 0 && !plan.down {
		p.printf("  no fault is given: every call passes unchanged")
	}
	p.printf("  until interrupted")
}

func latency(l fake.Latency) string {
	text := l.Base.String()
	if l.Jitter != 0 {
		text += " to " + (l.Base + l.Jitter).String()
	}
	if l.PerItem != 0 {
		text += ", and " + l.PerItem.String() + " per item"
	}
	return text
}

// injected prints an injected fault.
func (p *printer) injected(s fault.Injection) {
	p.printf("kdiag: %s fault %d in %s%s", time.Since(p.start).Round(time.Millisecond), s.Number+1, s.RPC,
		describe(s.Target))
}

// describe names the object of a call. Its parts come from the caller or the runtime, so they are quoted.
func describe(t fake.Target) string {
	var words []string
	if t.Pod != "" {
		words = append(words, fmt.Sprintf("%q", t.Namespace+"/"+t.Pod))
	}
	if t.Container != "" {
		words = append(words, fmt.Sprintf("container %q", t.Container))
	}
	if t.ID != "" {
		words = append(words, fmt.Sprintf("(%.13q)", t.ID))
	}
	if len(words) == 0 {
		return ""
	}
	return " of " + strings.Join(words, " ")
}

// summary writes the counts per RPC, the most faulted first.
func summary(out io.Writer, stats map[string]fault.Count) error {
	type line struct {
		name string
		fault.Count
	}
	var lines []line
	var all fault.Count
	for name, c := range stats {
		lines = append(lines, line{name, c})
		all.Calls, all.Faulted = all.Calls+c.Calls, all.Faulted+c.Faulted
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(b.Faulted-a.Faulted, b.Calls-a.Calls, strings.Compare(a.name, b.name))
	})
	if _, err := fmt.Fprintf(out, "%-28s %8s %8s\n", "RPC", "calls", "faulted"); err != nil {
		return err
	}
	for _, l := range append(lines, line{"all", all}) {
		if _, err := fmt.Fprintf(out, "%-28.60s %8d %8d\n", l.name, l.Calls, l.Faulted); err != nil {
			return err
		}
	}
	return nil
}
