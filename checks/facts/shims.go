package facts

import (
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// ShimSettled is the age from which a shim and its sandbox must know of each other: the lists and the processes are not read at the
// same moment, and a sandbox takes seconds to set up.
const ShimSettled = 2 * time.Minute

// stoppedShims returns the shims that a signal or a tracer stopped, but for those of another runtime.
func stoppedShims(f *Facts) []host.Process {
	return slices.DeleteFunc(slices.Clone(f.Shims.EveryStopped), func(p host.Process) bool { return IsForeignShim(f, p) })
}

// everyStoppedShim returns those of other runtimes as well.
func everyStoppedShim(f *Facts) []host.Process {
	n := f.Seen
	var out []host.Process
	for _, p := range slices.Concat(n.Tasks.Value.Stopped, ProcessesOf(f, host.RoleShim)) {
		known := slices.ContainsFunc(out, func(o host.Process) bool { return o.PID == p.PID })
		if n.Tasks.OK && p.Role == host.RoleShim && IsStopped(&p) && !known {
			out = append(out, p)
		}
	}
	return out
}

// IsForeignShim reports whether a shim serves what the runtime that was asked does not list, without anything that names it as trouble.
func IsForeignShim(f *Facts, p host.Process) bool {
	return p.Role == host.RoleShim && p.ObjectID != "" && AgeOf(f, p) >= ShimSettled && f.Shims.Comparable && !IsListed(f, p.ObjectID) && !IsNamedBad(f, p.ObjectID)
}

// listsCompare reports whether the lists are whole, and of the runtime that the shims of this host can be held against.
func listsCompare(f *Facts) bool {
	if f.Target.Simulated || f.HostMissing != "" || !f.Calls.Connected || f.Target.OtherEndpoint {
		return false
	}
	m := f.Measurement
	return m.Sandboxes != nil && m.Containers != nil && m.Sandboxes.Complete && m.Containers.Complete && f.Calls.BothLists
}

// IsListed reports whether the runtime lists a sandbox or container of an id.
func IsListed(f *Facts, id string) bool {
	m := f.Measurement
	return m != nil && (m.Sandboxes != nil && slices.ContainsFunc(m.Sandboxes.Sandboxes, func(s crictl.PodSandbox) bool { return s.ID == id }) ||
		m.Containers != nil && slices.ContainsFunc(m.Containers.Containers, func(c crictl.Container) bool { return c.ID == id }))
}

// A shimGap is where the processes of the host and the lists of the runtime do not agree.
type ShimGap struct {
	Orphans  []host.Process      // shims whose object the runtime does not list
	Shimless []crictl.PodSandbox // ready, and without a shim
}

// shimGap compares shims and lists. Both must be whole, and old enough to know of each other. CRI-O runs sandboxes without any
// process, and a shim of each container: there only shims of one object each are compared.
func shimGap(f *Facts) (ShimGap, bool) {
	var g ShimGap
	m, shims := f.Measurement, ProcessesOf(f, host.RoleShim)
	if !f.Shims.Comparable || len(shims) == 0 {
		return g, false
	}
	listed := map[string]bool{}
	for _, s := range m.Sandboxes.Sandboxes {
		listed[s.ID] = true
	}
	for _, c := range m.Containers.Containers {
		listed[c.ID] = true
	}
	served, matches := map[string]bool{}, 0
	for _, p := range shims {
		served[p.ObjectID] = true
		switch {
		case listed[p.ObjectID]:
			matches++
		case p.ObjectID != "" && AgeOf(f, p) >= ShimSettled:
			g.Orphans = append(g.Orphans, p)
		}
	}
	if matches == 0 {
		return g, len(g.Orphans) > 0
	}
	ready := 0
	for _, s := range m.Sandboxes.Sandboxes {
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

// IsNamedBad reports whether the kubelet's log or a status call names an object as one that does not obey. Without that, a shim
// that is not listed may be another tool's.
func IsNamedBad(f *Facts, id string) bool {
	for _, code := range []string{signature.StopFailed, signature.RemoveFailed, signature.InspectFailed} {
		for _, s := range subjectsOf(f, code) {
			if (named{strings.TrimSpace(s.ID), s}).Is(id) {
				return true
			}
		}
	}
	for _, i := range f.Sweep.Made {
		if (i.ID == id || i.SandboxID == id) && (isHung(i) || IsFailed(i)) {
			return true
		}
	}
	return false
}

// gapCulprits returns what the comparison finds and something else confirms.
func gapCulprits(f *Facts) ShimGap {
	g, _ := f.Shims.Gap, f.Shims.Compared
	g.Orphans = slices.DeleteFunc(slices.Clone(g.Orphans), func(p host.Process) bool { return !IsNamedBad(f, p.ObjectID) })
	g.Shimless = slices.DeleteFunc(slices.Clone(g.Shimless), func(s crictl.PodSandbox) bool { return !IsNamedBad(f, s.ID) })
	return g
}

// OwnerOf is the owner of one of the runtime's processes.
func OwnerOf(p host.Process) host.Owner { return host.Owner{Role: p.Role, ObjectID: p.ObjectID} }
