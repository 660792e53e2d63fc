package facts

import (
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// ShimSettled is the age from which a shim and its sandbox must know of each other: the lists and the processes are
// not read at the same moment, and a sandbox takes seconds to set up.
const ShimSettled = 2 * time.Minute

// deriveShims works out which shims are stopped, and where shims and lists do not agree.
func deriveShims(f *Facts) {
	s, n, m := &f.Shims, f.Seen, f.Measurement
	s.Comparable = f.HostMissing == "" && f.Calls.Connected && f.Calls.BothLists && !f.Target.Simulated &&
		!f.Target.OtherEndpoint && m.Sandboxes != nil && m.Containers != nil && m.Sandboxes.Complete &&
		m.Containers.Complete
	for _, p := range slices.Concat(n.Tasks.Value.Stopped, ProcessesOf(f, host.RoleShim)) {
		known := slices.ContainsFunc(s.Stopped, func(o host.Process) bool { return o.PID == p.PID })
		if n.Tasks.OK && p.Role == host.RoleShim && IsStopped(&p) && !known && !IsForeignShim(f, p) {
			s.Stopped = append(s.Stopped, p)
		}
	}
	s.Gap, s.Compared = shimGap(f)
	s.Culprits = ShimGap{
		Orphans:  filter(s.Gap.Orphans, func(p host.Process) bool { return IsNamedBad(f, p.ObjectID) }),
		Shimless: filter(s.Gap.Shimless, func(b crictl.PodSandbox) bool { return IsNamedBad(f, b.ID) }),
	}
}

// IsForeignShim reports whether a shim serves what the runtime that was asked does not list, without anything that
// names it as trouble.
func IsForeignShim(f *Facts, p host.Process) bool {
	return p.Role == host.RoleShim && p.ObjectID != "" && AgeOf(f, p) >= ShimSettled && f.Shims.Comparable &&
		!IsListed(f, p.ObjectID) && !IsNamedBad(f, p.ObjectID)
}

// IsListed reports whether the runtime lists a sandbox or container of an id.
func IsListed(f *Facts, id string) bool {
	return slices.ContainsFunc(sandboxesOf(f), func(s crictl.PodSandbox) bool { return s.ID == id }) ||
		slices.ContainsFunc(containersOf(f), func(c crictl.Container) bool { return c.ID == id })
}

// A ShimGap is where the processes of the host and the lists of the runtime do not agree.
type ShimGap struct {
	Orphans  []host.Process      // shims whose object the runtime does not list
	Shimless []crictl.PodSandbox // ready, and without a shim
}

// shimGap compares shims and lists. Both must be whole, and old enough to know of each other. CRI-O runs sandboxes
// without any process, and a shim of each container: there only shims of one object each are compared.
func shimGap(f *Facts) (ShimGap, bool) {
	var g ShimGap
	shims := ProcessesOf(f, host.RoleShim)
	if !f.Shims.Comparable || len(shims) == 0 {
		return g, false
	}
	served, matches := map[string]bool{}, 0
	for _, p := range shims {
		served[p.ObjectID] = true
		if IsListed(f, p.ObjectID) {
			matches++
		} else if p.ObjectID != "" && AgeOf(f, p) >= ShimSettled {
			g.Orphans = append(g.Orphans, p)
		}
	}
	if matches == 0 {
		return g, len(g.Orphans) > 0
	}
	ready := 0
	for _, s := range sandboxesOf(f) {
		if s.State != crictl.SandboxReady || f.Now.Sub(time.Unix(0, s.CreatedAt)) < ShimSettled {
			continue
		}
		ready++
		if !served[s.ID] {
			g.Shimless = append(g.Shimless, s)
		}
	}
	if 2*len(g.Shimless) > ready || slices.ContainsFunc(shims, IsConmon) {
		g.Shimless = nil // this runtime does not have a shim for each sandbox
	}
	return g, true
}

// IsNamedBad reports whether the kubelet's log or a status call names an object as one that does not obey. Without
// that, a shim that is not listed may be another tool's.
func IsNamedBad(f *Facts, id string) bool {
	for _, code := range []string{signature.StopFailed, signature.RemoveFailed, signature.InspectFailed} {
		for _, s := range subjectsOf(f, code) {
			if (named{strings.TrimSpace(s.ID), s}).Is(id) {
				return true
			}
		}
	}
	return slices.ContainsFunc(f.Sweep.Made, func(i plegbench.Inspection) bool {
		return (i.ID == id || i.SandboxID == id) && (isHung(i) || IsFailed(i))
	})
}

// OwnerOf is the owner of one of the runtime's processes.
func OwnerOf(p host.Process) host.Owner { return host.Owner{Role: p.Role, ObjectID: p.ObjectID} }
