package facts

import (
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// ShimSettled is the age from which a shim and its sandbox must know of each other: the lists and the processes are
// not read at the same moment, and a sandbox takes seconds to set up.
const ShimSettled = 2 * time.Minute

// StuckWork is the age from which the work of an OCI runtime or a CNI plugin, or the start of a shim, is stuck. It
// takes a second or two, on a node that starts fifty pods at once up to ten. After LastingWork most of the kubelet's
// calls have failed (2m each, 4m for a sandbox with its network).
const (
	StuckWork   = 30 * time.Second
	LastingWork = 2 * time.Minute
)

// deriveShims works out which shims are stopped or stuck, and where shims and lists do not agree.
func deriveShims(f *Facts) {
	s, n := &f.Shims, f.Seen
	for _, p := range slices.Concat(n.Tasks.Value.Stopped, ProcessesOf(f, host.RoleShim)) {
		known := slices.ContainsFunc(s.Stopped, func(o host.Process) bool { return o.PID == p.PID })
		if n.Tasks.OK && p.Role == host.RoleShim && IsStopped(&p) && !known {
			s.Stopped = append(s.Stopped, p)
		}
	}
	s.Blocked = filter(ProcessesOf(f, host.RoleShim), func(p host.Process) bool {
		asleep := count(n.Tasks.Value.Blocked, func(t host.BlockedTask) bool { return t.PID == p.PID })
		return p.Threads > 0 && asleep >= p.Threads
	})
	s.Silent = filter(ProcessesOf(f, host.RoleShim), func(p host.Process) bool {
		is := func(o host.Peer) bool { return o.Kind == host.PeerShim && o.PID == p.PID }
		blocked := func(b host.Process) bool { return b.PID == p.PID }
		return slices.ContainsFunc(n.Peers.Value.Unanswered, is) && !IsStopped(&p) && !slices.ContainsFunc(s.Blocked, blocked)
	})
	s.Working = OldProcesses(f, host.RoleOCI, StuckWork)
	for _, p := range OldProcesses(f, host.RoleShim, StuckWork) {
		if p.Work != "" {
			s.Working = append(s.Working, p)
		}
	}
	s.Mute = muteShims(f)
	s.Gone = goneProcesses(f)
	s.Unwatched = unwatched(f)
	s.Gap, s.Compared = shimGap(f)
	replaced := slices.ContainsFunc(f.Processes, func(p host.Process) bool { return SharesSocket(f, p) })
	s.Culprits = ShimGap{
		Orphans: filter(s.Gap.Orphans, func(p host.Process) bool {
			begins := func(o host.Process) bool { return o.PID == p.PID || o.PPID == p.PID && o.ObjectID == p.ObjectID }
			if slices.ContainsFunc(slices.Concat(s.Mute, s.Working), begins) {
				return false // its sandbox is being made, and is in no list before it runs
			}
			if c := Logged(f, signature.CreateFailed); c != nil && c.First != nil && p.Started.After(*c.First) &&
				strings.Contains(c.Example+c.Newest(), "failed to start shim") {
				return false // the reason is the error
			}
			ours := IsAsked(f, p.Address) && p.Namespace == kubernetes && p.Work == ""
			return !replaced && ours || IsNamedBad(f, p.ObjectID)
		}),
		Shimless: filter(s.Gap.Shimless, func(b crictl.PodSandbox) bool { return IsNamedBad(f, b.ID) }),
	}
}

// StuckShims returns the shims that are stopped, in uninterruptible sleep for good, or too long at work, themselves or
// by the OCI runtime that they started.
func StuckShims(f *Facts) []host.Process {
	return filter(ProcessesOf(f, host.RoleShim), func(p host.Process) bool {
		return IsStopped(&p) || p.Lasting || slices.ContainsFunc(f.Shims.Working, func(w host.Process) bool {
			return w.PID == p.PID || w.PPID == p.PID
		})
	})
}

// muteAge is the age from which a shim should have started a process.
const muteAge = time.Minute

// muteShims returns the shims that the runtime waits for: a shim begins the first process of its sandbox within a
// second, and only then a list has the sandbox. Its bundle is there until the runtime gives up. Other shims than runc's
// are started before the pod has its network, which a CNI plugin may hold up.
func muteShims(f *Facts) []host.Process {
	return filter(ProcessesOf(f, host.RoleShim), func(p host.Process) bool {
		hasPlugin := slices.ContainsFunc(ProcessesOf(f, host.RoleCNI), func(o host.Process) bool {
			return o.ObjectID == p.ObjectID || o.Serves.Pod == p.Serves.Pod && o.Serves.Namespace == p.Serves.Namespace
		})
		isChild := func(o host.Process) bool { return o.PPID == p.PID }
		if slices.ContainsFunc(ProcessesOf(f, host.RoleOCI), isChild) {
			return false
		}
		return f.Shims.Comparable && p.Serves.Pod != "" && p.Work == "" && p.Namespace == kubernetes && p.State == 'S' &&
			(IsConmon(p) || IsAsked(f, p.Address)) && !IsListed(f, p.ObjectID) && AgeOf(f, p) >= muteAge && !hasPlugin
	})
}

// goneProcesses returns what the runtime calls running or ready, though no process of it lives: its shim has missed the
// end, or nobody has fetched it. The processes were read before the newest lists. Only shims of runc are judged, which
// have each container's processes on this host, and only where the control groups of others in the lists were seen.
func goneProcesses(f *Facts) (gone []checks.Subject) {
	alive := f.Seen.Tasks.Value.Living
	runc := map[string]bool{}
	for _, p := range ProcessesOf(f, host.RoleShim) {
		runc[p.ObjectID] = strings.HasPrefix(p.Program, "containerd-shim-runc") && !IsStopped(&p) && p.Work == ""
	}
	sandboxes := sandboxesOf(f)
	if !f.Shims.Comparable || len(alive) == 0 ||
		!slices.ContainsFunc(sandboxes, func(s crictl.PodSandbox) bool { return alive[s.ID] }) {
		return nil
	}
	for e := range Entries(f, RPCSandboxes, RPCContainers) {
		settled := f.Now.Sub(time.Unix(0, e.CreatedAt)) >= ShimSettled
		if e.Runs && runc[e.SandboxID] && settled && !alive[e.ID] {
			o := OwnedBy(f, host.Owner{ObjectID: e.ID})
			o.Kind, o.ID = e.Kind, e.ID
			gone = append(gone, o)
		}
	}
	return gone
}

// unwatched returns the containers that live without their conmon. CRI-O starts one for each container; conmonrs, which
// serves a pod, and the shims of virtual machines are not judged.
func unwatched(f *Facts) (all []checks.Subject) {
	served := map[string]bool{}
	for _, p := range ProcessesOf(f, host.RoleShim) {
		if served[p.ObjectID] = true; p.Program == "conmonrs" {
			return nil
		}
	}
	if !f.Shims.Comparable || !strings.EqualFold(f.Target.Name, "cri-o") {
		return nil
	}
	for e := range Entries(f, RPCContainers) {
		settled := f.Now.Sub(time.Unix(0, e.CreatedAt)) >= ShimSettled
		if e.Runs && settled && f.Seen.Tasks.Value.Living[e.ID] && !served[e.ID] && !served[e.SandboxID] {
			o := OwnedBy(f, host.Owner{ObjectID: e.ID})
			o.Kind, o.ID = KindContainer, e.ID
			all = append(all, o)
		}
	}
	return all
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
			if (Named{strings.TrimSpace(s.ID), s}).Is(id) {
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
