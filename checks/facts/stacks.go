package facts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/stacks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

// Candidates are the processes of this host that a goroutine of the runtime, of a shim or of the kubelet may wait for.
// Without a measurement in f those of all runtimes on the host are. Of the plugins that set up or take down the network
// of one pod, once for each call about it, the first stands for all.
func Candidates(f *Facts) []stacks.Candidate {
	all := make([]stacks.Candidate, 0, len(f.Processes))
	pods := map[[4]string]bool{}
	for _, p := range f.Processes {
		c := stacks.Candidate{
			Process: ProcessOf(f, p), Parent: p.PPID, Daemon: daemonBehind(f, p), Work: p.Work, Stuck: whyStuck(f, p),
		}
		if s := WorkOf(f, p); p.Role != host.RoleRuntime && p.Role != host.RoleKubelet && (s.ID != "" || s.Pod != "") {
			c.Subject = &s
		}
		if c.Subject != nil && p.Role == host.RoleCNI {
			pod := [4]string{c.Subject.Namespace, c.Subject.Pod, c.Subject.ID, p.Work}
			if pods[pod] {
				continue
			}
			pods[pod] = true
		}
		all = append(all, c)
	}
	return all
}

// daemonBehind is the pid of the runtime's daemon that a process belongs to. Shims outlive the daemon that started
// them, and have the path of its socket; conmon has left its daemon when it starts the OCI runtime, and works for the
// CRI-O of the host where its container has a name of Kubernetes.
func daemonBehind(f *Facts, p host.Process) int {
	i := slices.IndexFunc(f.Processes, func(d host.Process) bool {
		same := func(path string) bool { return crictl.SameEndpoint(path, p.Address) }
		crio := d.Name == "crio" && strings.HasPrefix(p.Program, "conmon") && p.Namespace == kubernetes
		return d.Role == host.RoleRuntime && (crio || p.Address != "" && slices.ContainsFunc(d.Sockets, same))
	})
	switch {
	case p.Role == host.RoleRuntime:
		return p.PID
	case p.Daemon != 0:
		return p.Daemon
	case i >= 0:
		return f.Processes[i].PID
	case p.Address != "" && IsAsked(f, p.Address):
		return f.Target.Daemon.PID
	}
	return 0
}

// whyStuck explains why a process looks stuck, empty where it does not.
func whyStuck(f *Facts, p host.Process) string {
	age := AgeOf(f, p)
	switch {
	case p.State == 'Z':
		return ""
	case IsStopped(&p), IsUninterruptible(&p) && p.Lasting:
		return StateOf(p)
	case p.Work != "" && age >= LongOCI, p.Role == host.RoleOCI && age >= LongOCI:
		return "at work for " + units.Duration(age)
	case p.Role == host.RoleShim && p.Serves.Pod != "" && age >= muteAge && !IsListed(f, p.ObjectID):
		return "it has started nothing in " + units.Duration(age)
	}
	return ""
}

// WorkOf is the object that a process works for, as far as it is known: the sandbox of a shim or a CNI plugin, the
// container of an OCI runtime. A pod that is being set up is in no list yet; a plugin's environment and a bundle name
// it.
func WorkOf(f *Facts, p host.Process) checks.Subject {
	s := OwnedBy(f, OwnerOf(p))
	s.Kind, s.ID = cmp.Or(p.Serves.Kind, KindContainer), Clean(p.ObjectID)
	if p.Role == host.RoleCNI || p.Role == host.RoleShim && !IsConmon(p) || s.Pod != "" && s.Name == "" {
		s.Kind = KindSandbox
	}
	if s.Pod == "" {
		s.Namespace, s.Pod = Clean(p.Serves.Namespace), Clean(p.Serves.Pod)
		s.Name, s.PodUID = cmp.Or(s.Name, Clean(p.Serves.Name)), cmp.Or(s.PodUID, Clean(p.Serves.PodUID))
	}
	return s
}

// Stacks are the facts of the goroutine dumps of the runtime's daemon and its shims.
type Stacks struct {
	Taken   bool                 // the daemon wrote a dump
	Missing string               // why it wrote none, though one was asked for; empty where none was
	Kernel  []checks.KernelStack // where its threads are, where it wrote none
	Holds   []Hold               // first what most goroutines wait for
	waits   []checks.StackWait
}

// A Hold is one thing that keeps goroutines from going on: a lock that another one holds, or, with one goroutine and
// nobody behind it, something outside of the process.
type Hold struct {
	checks.StackHolder
	Last  checks.StackHolder    // who holds up the holder in the end: the same where nobody does
	Waits []checks.StackWait    // the groups that wait for the lock; empty for no lock
	Known []checks.KnownPicture // that one of these goroutines shows
}

// orCall stands between the calls of several goroutines of which a dump does not show which serves which.
const orCall = " or "

// MayServe reports whether the holder may serve one of the calls.
func (h Hold) MayServe(calls ...string) bool {
	return slices.ContainsFunc(strings.Split(h.Call, orCall), func(c string) bool { return slices.Contains(calls, c) })
}

// Serves returns how many goroutines that wait for the lock serve one of the calls.
func (h Hold) Serves(calls ...string) int { return served(h.Waits, calls) }

// Serving returns how many goroutines that wait for anything serve one of the calls.
func (s Stacks) Serving(calls ...string) int { return served(s.waits, calls) }

func served(waits []checks.StackWait, calls []string) (n int) {
	for _, w := range waits {
		if slices.ContainsFunc(w.Calls, func(c string) bool { return slices.Contains(calls, c) }) {
			n += w.Count
		}
	}
	return n
}

// StackSource returns the process of which a goroutine is.
func StackSource(f *Facts, h checks.StackHolder) checks.StackSource {
	if r := f.Input.Stacks; r != nil && h.Source >= 0 && h.Source < len(r.Sources) {
		return r.Sources[h.Source]
	}
	return checks.StackSource{}
}

// The most holders and groups of waiting goroutines that are looked at. A daemon in trouble has a few and some hundred.
const (
	maxHolders = 50
	maxWaits   = 1000
)

// deriveStacks works out the holders.
func deriveStacks(f *Facts) {
	if f.Input.Stacks == nil {
		return
	}
	bounded := *f.Input.Stacks // a report that was read again may have any size
	r := &bounded
	r.Holders, r.Waits = r.Holders[:min(len(r.Holders), maxHolders)], r.Waits[:min(len(r.Waits), maxWaits)]
	for _, s := range r.Sources {
		if s.Role == string(host.RoleRuntime) {
			f.Stacks.Taken = f.Stacks.Taken || s.Goroutines > 0
			f.Stacks.Missing = cmp.Or(f.Stacks.Missing, Clean(s.Problem))
			f.Stacks.Kernel = innermost(s.Kernel)
		}
	}
	f.Stacks.waits = r.Waits
	for _, h := range append(slices.Clone(r.Holders), outside(f, r)...) {
		hold := Hold{StackHolder: h, Last: endOf(r, h), Waits: filter(r.Waits, h.Holds)}
		hold.Known = filter(r.Known, func(k checks.KnownPicture) bool {
			return k.Source == h.Source && slices.ContainsFunc(k.Goroutines, hold.has)
		})
		f.Stacks.Holds = append(f.Stacks.Holds, hold)
	}
}

// has reports whether a goroutine waits for it or holds it.
func (h Hold) has(goroutine int) bool {
	return h.Goroutine == goroutine || slices.ContainsFunc(h.Waits, func(w checks.StackWait) bool {
		return slices.Contains(w.Goroutines, goroutine)
	})
}

// endOf follows the holders from a holder to the last; in a deadlock to any of them.
func endOf(r *checks.StacksReport, h checks.StackHolder) checks.StackHolder {
	for range r.Holders {
		i := slices.IndexFunc(r.Holders, func(next checks.StackHolder) bool {
			return slices.ContainsFunc(r.Waits, func(w checks.StackWait) bool {
				return next.Holds(w) && w.Has(h.Source, h.Goroutine)
			})
		})
		if i < 0 {
			break
		}
		h = r.Holders[i]
	}
	return h
}

// innermost returns the two places in the kernel at which most threads are, by their innermost functions.
func innermost(all []checks.KernelStack) (some []checks.KernelStack) {
	for _, k := range all {
		k.Stack = k.Stack[:min(len(k.Stack), MostNamed)]
		i := slices.IndexFunc(some, func(o checks.KernelStack) bool {
			return o.State == k.State && slices.Equal(o.Stack, k.Stack)
		})
		if i < 0 {
			some = append(some, k)
		} else {
			some[i].Threads += k.Threads
		}
	}
	return some[:min(len(some), 2)]
}

// TieStacks names in the report on goroutine dumps of in the processes that the holders wait for. A goroutine that
// nobody waits for is a holder too, of the call that it serves, where it waits for a process that is stopped or at work
// for too long, or in a known way to hang: dumps have no times in their first minutes.
func TieStacks(in *Input) {
	if in.Stacks == nil {
		return
	}
	r, f := in.Stacks, New(in)
	stacks.Tie(r, Candidates(f))
	f.Stacks = Stacks{}
	deriveStacks(f) // with the new holders
	for _, h := range f.Stacks.Holds {
		named := func(o checks.StackHolder) bool { return o.Process != nil && o.Process.PID == h.Process.PID }
		amiss := func(p host.Process) bool { // and not at work as it should be
			return p.PID == h.Process.PID && (IsStopped(&p) || p.Work != "" && AgeOf(f, p) >= StuckWork)
		}
		if h.Blocks > 0 || h.Process == nil || slices.ContainsFunc(r.Holders, named) ||
			len(h.Known) == 0 && !slices.ContainsFunc(f.Processes, amiss) {
			continue
		}
		h.Confidence = checks.Confidence(checks.Strong, h.Evidence)
		r.Holders = append(r.Holders, h.StackHolder)
	}
}

// within are the things inside of a process that its goroutines wait for.
var within = []string{
	"", stacks.WaitsLock, stacks.WaitsBolt, stacks.WaitsChannel, stacks.WaitsCondition, stacks.WaitsGoroutines,
	stacks.WaitsSleep, stacks.WaitsNothing,
}

// outside returns, of each group of goroutines that wait for something outside of their process, while nobody waits for
// them, the first. In a busy daemon there are some at any time: they mean something beside a recognised cause only.
func outside(f *Facts, r *checks.StacksReport) []checks.StackHolder {
	var own []checks.StackHolder
	all := Candidates(f)
	for _, w := range r.Waits {
		holds := func(h checks.StackHolder) bool { return w.Has(h.Source, h.Goroutine) }
		if slices.Contains(within, w.WaitsFor) || len(w.Goroutines) == 0 || slices.ContainsFunc(r.Holders, holds) {
			continue
		}
		h := checks.StackHolder{
			Source: w.Source, Goroutine: w.Goroutines[0], Seconds: w.MinSeconds, Why: "it waits for " + w.On,
			WaitsFor: w.WaitsFor, Call: strings.Join(w.Calls, orCall), Stack: w.Stack,
			Evidence: checks.Evidence{For: []string{}, Against: []string{}, Missing: []string{}},
		}
		if w.WaitsFor == stacks.WaitsFlock && len(f.FileLocks) == 1 {
			l := f.FileLocks[0]
			p := ProcessOf(f, host.Process{PID: l.PID, Name: l.Name, State: l.State})
			h.Why, h.Process = "it waits for the lock of the database "+Clean(l.Path), &p
		}
		if w.Count > 1 {
			h.Why += ", as " + units.Count(w.Count-1, "other") + units.Plural(w.Count-1, " does", " do")
		}
		one := &checks.StacksReport{Sources: r.Sources, Holders: []checks.StackHolder{h}}
		stacks.Tie(one, all)
		own = append(own, one.Holders[0])
	}
	slices.SortStableFunc(own, func(a, b checks.StackHolder) int { return first(a.Call != "", b.Call != "") })
	return own
}
