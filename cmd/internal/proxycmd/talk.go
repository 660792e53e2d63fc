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

// A talk is what the proxy says while it runs. When that fails there is nobody left to tell.
type talk struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer
}

func (t *talk) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.out, format+"\n", args...)
}

// begin says where the proxy is, how to use it, and what it will do.
func (t *talk) begin(listen string, behind crictl.Endpoint, p plan) {
	t.say("kdiag: proxy on %s, in front of %s (%s)", listen, behind.URL, behind.Reason)
	t.say("  crictl:  crictl --runtime-endpoint %s ps", listen)
	t.say("  kubelet: containerRuntimeEndpoint: %s in its configuration file, or --container-runtime-endpoint=%s; then restart it", listen, listen)
	if p.name != "" {
		t.say("  scenario %s", p.name)
	}
	if p.pods {
		t.say("  the scenario's pods play no part: the runtime has its own, and faults strike them by name")
	}
	if p.down {
		t.say("  nobody listens: connections are refused")
	}
	for i, f := range p.Faults {
		t.say("  fault %d: %s", i+1, fault.Format(f))
	}
	for _, l := range p.Latency {
		t.say("  latency of %s: %s", l.RPC, latency(l))
	}
	for _, c := range p.Conditions {
		t.say("  condition %s=%t %s", c.Type, c.Status, strings.TrimSpace(c.Reason+" "+c.Message))
	}
	if len(p.Faults)+len(p.Latency)+len(p.Conditions) == 0 && !p.down {
		t.say("  no fault is given: every call passes as it is")
	}
	t.say("  until interrupted")
}

func latency(l fake.Latency) string {
	text := l.Base.String()
	if l.Jitter != 0 {
		text += " to " + (l.Base + l.Jitter).String()
	}
	if l.PerItem != 0 {
		text += ", and " + l.PerItem.String() + " for each item"
	}
	return text
}

// strike says that a fault has struck.
func (t *talk) strike(s fault.Injection) {
	t.say("kdiag: %s fault %d strikes %s%s", time.Since(t.start).Round(time.Millisecond), s.Number+1, s.RPC, whom(s.Target))
}

// whom says in a few words whom a call is about. What is in it was given by the caller or the runtime.
func whom(t fake.Target) string {
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

// summary writes what passed, the most struck first.
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
	if _, err := fmt.Fprintf(out, "%-28s %8s %8s\n", "RPC", "calls", "struck"); err != nil {
		return err
	}
	for _, l := range append(lines, line{"all", all}) {
		if _, err := fmt.Fprintf(out, "%-28.60s %8d %8d\n", l.name, l.Calls, l.Faulted); err != nil {
			return err
		}
	}
	return nil
}
