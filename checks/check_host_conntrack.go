package checks

import "github.com/kdiag/kdiag/checks/host"

func hostConntrack() Check {
	return Check{
		ID:    "host.conntrack",
		Title: "the table of connections has room",
		Text: "Compares nf_conntrack_count with nf_conntrack_max. A full table drops new connections, those of the kubelet to the API server and of probes among them; the kernel's log says \"nf_conntrack: table full\". " +
			"It does not touch the runtime's socket, so it is no cause here.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.Conntrack] { return n.Conntrack }, func(c host.Conntrack) Result {
				if c.Max == 0 {
					return result(StatusSkipped, "connections are not tracked on this node")
				}
				return result(f.nodeLimits().statusOf(used(c.Usage)), "%s entries", usage(c.Usage))
			})
		},
	}
}
