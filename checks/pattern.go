package checks

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// A hang is the way in which a whole runtime does not answer.
type hang uint8

const (
	hangNone    hang = iota
	hangSilent       // connects, but the transport never says a word: no process runs behind it
	hangBacklog      // the listen queue is full: nothing accepts any more
	hangAll          // the transport answers, every RPC misses its deadline
	hangMidway       // it answered, and then stopped answering for good while it was measured
	hangMost         // the lists answer, the status calls of most objects do not
)

// The share and the number of hung status calls from which the trouble is the runtime's and not that of single
// objects: one broken shim, or one dead volume under a few pods, does not reach both.
const (
	mostOfStatuses  = 0.5
	manyOfStatuses  = 20
	podsOfAStandoff = 3 // pods whose calls must hang together before silence counts as the runtime's
)

// wholeHang tells in which way the whole runtime hangs, hangNone if it does not. Causes that single RPCs or objects
// point at are explained by it and are not reported beside it.
func (f *Facts) wholeHang() hang {
	if f.Measurement == nil {
		return hangNone
	}
	switch f.Measurement.Connect.State {
	case crictl.ConnectSilent:
		return hangSilent
	case crictl.ConnectBacklogged:
		return hangBacklog
	case crictl.ConnectOK:
	default:
		return hangNone
	}
	if f.allHang() {
		if f.crawls() {
			return hangNone
		}
		return hangAll
	}
	if s, ok := f.silence(); ok && !s.Recovered || f.stoppedForGood() {
		return hangMidway
	}
	if f.mostHang() && f.anyList() && !f.imagesHold() {
		return hangMost
	}
	return hangNone
}

// mostHang reports whether so many status calls hang that no single object explains it: most of many, or all of them in
// more than one pod.
func (f *Facts) mostHang() bool {
	all, hungs := f.inspections(), f.inspectionsThat(isHung)
	if len(hungs) == len(all) && len(f.hungLists()) == 0 {
		return podsOf(hungs) > 1
	}
	return len(hungs) > manyOfStatuses && float64(len(hungs)) >= mostOfStatuses*float64(len(all))
}

// imagesHold reports whether the image store explains the hung status calls: image calls hang, and so do containers, which
// may need the store, but no sandbox, which never does.
func (f *Facts) imagesHold() bool {
	if f.rpc(rpcImages).Outcome != hung && f.rpc(rpcImageFs).Outcome != hung {
		return false
	}
	return !slices.ContainsFunc(f.inspections(), func(i plegbench.Inspection) bool { return isHung(i) && i.Kind == kindSandbox })
}

// allHang reports whether every RPC that needs the runtime's state hangs. Version is a constant of the daemon: that it
// still answers does not make the rest alive. A list that was not asked counts as hung, since the kubelet does not ask
// for containers either when the sandboxes do not come.
func (f *Facts) allHang() bool {
	n := 0
	for _, name := range []string{rpcStatus, rpcSandboxes, rpcContainers} {
		switch f.rpc(name).Outcome {
		case hung:
			n++
		case notAsked:
		default:
			return false
		}
	}
	return n >= 2
}

// crawls reports whether nothing but Version came in time, and Version late: a runtime that gets on, too slowly for the
// deadline that kdiag gave it.
func (f *Facts) crawls() bool {
	d, ok := f.rpc(rpcVersion).fastest()
	return ok && f.allHang() && d >= max(f.rpcTimeout(), f.Limits.SlowList)/slowCompanyFactor
}

// A silence is a time in which a runtime that had been answering answered nothing.
type silence struct {
	From      time.Time
	For       time.Duration // how long nothing came, as far as it was watched
	Hung      int           // calls that hung in it
	Recovered bool          // calls were answered after it
}

// silence finds the first time after the probes in which calls hung and nothing at all was answered, not even a pulse. One
// hung object does not make a silence, because others are answered beside it.
func (f *Facts) silence() (silence, bool) {
	calls := f.laterCalls()
	first := firstHung(calls)
	if first == nil || f.listProbeHung() {
		return silence{}, false
	}
	const inFlight = 20 * time.Millisecond // answers that were on their way when it stopped
	s := silence{From: first.call.Start}
	until := first.call.Start.Add(first.call.Elapsed)
	last := until
	pods, lists, others := map[string]bool{}, 0, 0
	for _, c := range calls {
		end := c.call.Start.Add(c.call.Elapsed)
		switch {
		case c.call.Hung():
			s.Hung++
			if end.After(last) {
				last = end
			}
			if c.pod == "" {
				lists++
			} else {
				pods[c.pod] = true
			}
		case !c.call.OK() && c.call.Code != crictl.NotFound:
		case !end.Before(until):
			s.Recovered = true
		case end.After(s.From.Add(inFlight)):
			return silence{}, false
		}
		if c.pod != "" && c.call.Start.After(s.From) {
			others++
		}
	}
	for _, p := range f.Measurement.Liveness {
		switch {
		case !p.OK() || !p.Start.After(s.From):
		case p.Start.Before(until):
			return silence{}, false // objects hang, the daemon does not
		default:
			s.Recovered = true
		}
	}
	s.For = last.Sub(s.From)
	if s.Recovered {
		s.For = until.Sub(s.From)
	}
	wide := len(pods) >= podsOfAStandoff || lists > 0 && (len(pods) > 0 || others == 0 && lists > 1)
	return s, wide
}

// stoppedForGood reports whether a runtime that had answered left even Version unanswered when its pulse was taken, and
// nothing was answered since.
func (f *Facts) stoppedForGood() bool {
	m := f.Measurement
	if !m.Stopped() {
		return false
	}
	pulse := m.Liveness[len(m.Liveness)-1]
	return !slices.ContainsFunc(f.laterCalls(), func(c timed) bool {
		return c.call.OK() && c.call.Start.Add(c.call.Elapsed).After(pulse.Start)
	})
}

// listProbeHung reports whether a list hung from the start, so that later ones add nothing to it.
func (f *Facts) listProbeHung() bool {
	for _, p := range f.Measurement.Probes {
		if name := canonical(p.Method); p.Hung() && (name == rpcSandboxes || name == rpcContainers) {
			return true
		}
	}
	return false
}

// A timed call is a call with the pod that it was about.
type timed struct {
	call crictl.Call
	pod  string // UID, or id of the sandbox; empty for a list
}

// laterCalls returns the lists and status calls that came after the probes, those with a time only.
func (f *Facts) laterCalls() []timed {
	var calls []timed
	for _, name := range []string{rpcSandboxes, rpcContainers} {
		for _, c := range f.rpc(name).Calls {
			if !c.Start.IsZero() && !f.isProbe(c) {
				calls = append(calls, timed{call: c})
			}
		}
	}
	for _, i := range f.inspections() {
		if !i.Call.Start.IsZero() {
			calls = append(calls, timed{call: i.Call, pod: podKey(i)})
		}
	}
	return calls
}

// isProbe reports whether a call is one of the probes that were made side by side at the start.
func (f *Facts) isProbe(c crictl.Call) bool {
	for _, p := range f.Measurement.Probes {
		if p.Start.Equal(c.Start) && canonical(p.Method) == canonical(c.Method) {
			return true
		}
	}
	return false
}

// firstHung returns the hung call that was made first.
func firstHung(calls []timed) *timed {
	var first *timed
	for i := range calls {
		if calls[i].call.Hung() && (first == nil || calls[i].call.Start.Before(first.call.Start)) {
			first = &calls[i]
		}
	}
	return first
}

// podKey tells pods apart: by UID, else by sandbox, else by the object itself.
func podKey(i plegbench.Inspection) string {
	switch {
	case i.Pod.UID != "":
		return i.Pod.UID
	case i.SandboxID != "":
		return i.SandboxID
	}
	return i.ID
}

// podsOf counts the pods that inspections belong to. The kubelet gives up on a pod at its first failing call, so pods,
// not calls, are what a relist pays for.
func podsOf(some []plegbench.Inspection) int {
	pods := map[string]bool{}
	for _, i := range some {
		pods[podKey(i)] = true
	}
	return len(pods)
}

// stalls reports whether the runtime misses deadlines and goes on nevertheless.
func (f *Facts) stalls() bool {
	if f.crawls() {
		return true
	}
	if s, ok := f.silence(); ok && s.Recovered {
		return true
	}
	if f.rpc(rpcSandboxes).Outcome == stalled || f.rpc(rpcContainers).Outcome == stalled {
		return true
	}
	return f.rpc(rpcVersion).Outcome == hung && f.anyList()
}
