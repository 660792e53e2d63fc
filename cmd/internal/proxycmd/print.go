package proxycmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// begin prints the proxy's socket, how to use it, and its faults.
func (p *printer) begin(listen string, behind crictl.Endpoint, plan fake.Scenario) {
	p.printf("kdiag: proxy on %s, in front of %s (%s)", listen, behind.URL, behind.Reason)
	p.printf("  crictl:  crictl --runtime-endpoint %s ps", listen)
	p.printf("  kubelet: containerRuntimeEndpoint: %[1]s in its configuration file, "+
		"or --container-runtime-endpoint=%[1]s; then restart it", listen)
	if plan.Name != "" {
		p.printf("  scenario %s, on the runtime's own pods", plan.Name)
	}
	if plan.Socket == fake.SocketRefuse {
		p.printf("  nothing listens: connections are refused")
	}
	for i, f := range plan.Faults {
		text, _ := json.Marshal(f) // no field of a fault fails
		p.printf("  fault %d: %s", i+1, text)
	}
	for _, l := range plan.Latency {
		p.printf("  latency: %s delayed by %s to %s, and %s per item", l.RPC, l.Base, l.Base+l.Jitter, l.PerItem)
	}
	for _, c := range plan.Conditions {
		p.printf("  condition %s=%t %s", c.Type, c.Status, strings.TrimSpace(c.Reason+" "+c.Message))
	}
	if len(plan.Faults)+len(plan.Latency)+len(plan.Conditions) == 0 && plan.Socket == fake.SocketListen {
		p.printf("  no faults: every call passes unchanged")
	}
	p.printf("  until interrupted")
}

// injected prints an injected fault. The names of the object come from the caller or the runtime, so they are quoted.
func (p *printer) injected(s fault.Injection) {
	object := ""
	if t := s.Target; t.Pod != "" {
		object = fmt.Sprintf(" %q", strings.TrimSuffix(t.Namespace+"/"+t.Pod+"/"+t.Container, "/"))
	} else if t.ID != "" {
		object = fmt.Sprintf(" %.13q", t.ID)
	}
	p.printf("kdiag: %s fault %d: %s%s faulted", time.Since(p.start).Round(time.Millisecond), s.Number+1, s.RPC, object)
}

// summary writes the counts per RPC, the most faulted first.
func summary(out io.Writer, stats map[string]fault.Count) error {
	names := slices.SortedFunc(maps.Keys(stats), func(a, b string) int {
		return cmp.Or(stats[b].Faulted-stats[a].Faulted, stats[b].Calls-stats[a].Calls, strings.Compare(a, b))
	})
	var text strings.Builder
	fmt.Fprintf(&text, "%-28s %8s %8s\n", "RPC", "calls", "faulted")
	var all fault.Count
	for _, name := range names {
		c := stats[name]
		all.Calls, all.Faulted = all.Calls+c.Calls, all.Faulted+c.Faulted
		fmt.Fprintf(&text, "%-28.60s %8d %8d\n", name, c.Calls, c.Faulted)
	}
	fmt.Fprintf(&text, "%-28s %8d %8d\n", "all", all.Calls, all.Faulted)
	_, err := io.WriteString(out, text.String())
	return err
}
