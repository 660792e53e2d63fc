package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

func hostConntrack() Check {
	return Check{
		ID:    "host.conntrack",
		Title: "the table of connections has room",
		Text: "Compares nf_conntrack_count with nf_conntrack_max. A full table drops new connections, those of the kubelet to the API server and of probes among them; the kernel's log says \"nf_conntrack: table full\". " +
			"It does not touch the runtime's socket, so it is no cause here.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.Conntrack] { return n.Conntrack }, func(c host.Conntrack) checks.Result {
				if c.Max == 0 {
					return result(checks.StatusSkipped, "connections are not tracked on this node")
				}
				return result(facts.StatusOf(f.Limits.Node, facts.Used(c.Usage)), "%s entries", facts.UsageText(c.Usage))
			})
		},
	}
}
