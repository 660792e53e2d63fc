package host

import (
	"context"
	"slices"
)

// A Row is one process in the table of all. Its Role is empty for a process without one.
type Row struct {
	Process
	RSS    int    // resident memory, bytes
	Cgroup string // its path; empty when not known
	// Args are the arguments of daemons, shims and the kubelet. Those of others stay on the node: a container's may
	// hold secrets.
	Args []string
}

// Table returns all processes, those with a role first. Cgroups and arguments, whose reads can block, are read for as
// many as gatherTimeout allows; the error names where the reader was abandoned.
func (p Population) Table(ctx context.Context) ([]Row, error) {
	if p.all == nil {
		return nil, p.gap()
	}
	order := p.byWorth()
	order = order[:min(len(order), maxEntries)]
	found, err := gather(ctx, "reading the table of processes", order, func(at *position, st stat) (r Row, ok bool) {
		if st.kernel {
			return r, false
		}
		for _, m := range p.cgroups(at, st.pid) {
			if len(m.cgroup) > len(r.Cgroup) { // some hierarchies of cgroup v1 have nothing but the root
				r.Cgroup = m.cgroup
			}
		}
		daemons := []Role{RoleRuntime, RoleShim, RoleKubelet}
		if st.state != 'D' && slices.Contains(daemons, p.roles[st.pid].Role) {
			at.enter("cmdline of process %d (%s)", st.pid, st.comm)
			r.Args = nulSeparated(p.dir(st.pid), "cmdline")
		}
		return r, true
	})
	rows := make([]Row, 0, len(order))
	for _, st := range order {
		r, known := found[st], p.roles[st.pid]
		if now, err := readStat(p.dir(st.pid)); err == nil && now.start == st.start {
			st = now
		}
		r.Process, r.RSS = p.describe(st, known.Role, known.ObjectID), st.rss
		rows = append(rows, r)
	}
	return rows, err
}
