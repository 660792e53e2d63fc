package facts

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// onlyImageList reports whether ListImages hangs alone: what watches the disk still answers.
func onlyImageList(f *Facts) bool {
	return f.RPC[RPCImages].Outcome == Hung && f.RPC[RPCImageFs].Outcome.Alive()
}

// Sizes from which a list's time may be its size's: 5,000 exited containers come in 38 ms (docs/bench), 8 microseconds each.
// Sixty times that is still honest on a loaded node; below 5,000 objects a slow list never is.
const (
	ManyObjects       = 5000
	honestPerObject   = 500 * time.Microsecond
	SlowCompanyFactor = 4 // all is slow when even the quickest RPC needs a quarter of SlowList
)

// slowLists reports whether the lists take too long for what they hold.
func slowLists(f *Facts) bool {
	list, known := f.Calls.ListMedian, f.Calls.ListTimed
	return known && f.Limits.SlowList > 0 && list >= f.Limits.SlowList && !slowBySize(f, list)
}

// slowStatuses reports whether status calls take too long.
func slowStatuses(f *Facts) bool {
	status, known := f.Sweep.Median, f.Sweep.Timed
	return known && f.Limits.SlowStatus > 0 && status >= f.Limits.SlowStatus
}

// isSlow reports whether the runtime answers, but slowly or with pauses.
func isSlow(f *Facts) bool {
	return f.Calls.Connected && f.Pattern.Hang == HangNone && (f.Pattern.SlowLists || f.Pattern.SlowStatuses || f.Pattern.Stalls)
}

// listMedian returns the median time of one relist's lists.
func listMedian(f *Facts) (time.Duration, bool) {
	if f.Summary == nil || f.Summary.List == nil || f.Summary.List.P50Seconds == nil {
		return 0, false
	}
	return units.ToDuration(*f.Summary.List.P50Seconds), true
}

// statusMedian returns the median time of one answered status call.
func statusMedian(f *Facts) (time.Duration, bool) {
	if s := f.Sweep.Summary; s != nil && s.P50Seconds != nil {
		return units.ToDuration(*s.P50Seconds), true
	}
	return 0, false
}

// slowBySize reports whether the number of objects alone explains the time of the lists.
func slowBySize(f *Facts, list time.Duration) bool {
	n := f.Lists.Objects
	return n >= ManyObjects && list <= time.Duration(n)*honestPerObject
}

// allSlow reports whether even the quickest of the plain RPCs is slow: then the daemon as a whole does not get on.
func allSlow(f *Facts) bool {
	if f.Limits.SlowList <= 0 {
		return false
	}
	seen := 0
	for _, name := range []string{RPCVersion, RPCStatus, RPCSandboxes, RPCContainers} {
		d, ok := f.RPC[name].Fastest()
		if !ok {
			continue
		}
		seen++
		if d < f.Limits.SlowList/SlowCompanyFactor {
			return false
		}
	}
	return seen > 1
}

// A hang is the way in which a whole runtime does not answer.
type Hang uint8

const (
	HangNone    Hang = iota
	HangSilent       // connects, but the transport never says a word: no process runs behind it
	HangBacklog      // the listen queue is full: nothing accepts any more
	HangAll          // the transport answers, every RPC misses its deadline
	HangMidway       // it answered, and then stopped answering for good while it was measured
	HangMost         // the lists answer, the status calls of most objects do not
)

// The share and the number of hung status calls from which the trouble is the runtime's and not that of single
// objects: one broken shim, or one dead volume under a few pods, does not reach both.
const (
	MostOfStatuses  = 0.5
	ManyOfStatuses  = 20
	podsOfAStandoff = 3 // pods whose calls must hang together before silence counts as the runtime's
)

// wholeHang tells in which way the whole runtime hangs, hangNone if it does not. Causes that single RPCs or objects
// point at are explained by it and are not reported beside it.
func wholeHang(f *Facts) Hang {
	if f.Measurement == nil {
		return HangNone
	}
	switch f.Measurement.Connect.State {
	case crictl.ConnectSilent:
		return HangSilent
	case crictl.ConnectBacklogged:
		return HangBacklog
	case crictl.ConnectOK:
	default:
		return HangNone
	}
	if allHang(f) {
		if f.Pattern.Crawls {
			return HangNone
		}
		return HangAll
	}
	if s, ok := f.Pattern.Stall, f.Pattern.Stalled; ok && !s.Recovered || f.Pattern.StoppedForGood {
		return HangMidway
	}
	if mostHang(f) && f.Calls.AnyList && !f.Pattern.ImagesHold {
		return HangMost
	}
	return HangNone
}

// mostHang reports whether so many status calls hang that no single object explains it: most of many, or all of them in
// more than one pod.
func mostHang(f *Facts) bool {
	all, hungs := f.Sweep.Made, f.Sweep.Hung
	if len(hungs) == len(all) && len(f.Calls.HungLists) == 0 {
		return PodsOf(hungs) > 1
	}
	return len(hungs) > ManyOfStatuses && float64(len(hungs)) >= MostOfStatuses*float64(len(all))
}

// imagesHold reports whether the image store explains the hung status calls: image calls hang, and so do containers, which
// may need the store, but no sandbox, which never does.
func imagesHold(f *Facts) bool {
	if f.RPC[RPCImages].Outcome != Hung && f.RPC[RPCImageFs].Outcome != Hung {
		return false
	}
	return !slices.ContainsFunc(f.Sweep.Made, func(i plegbench.Inspection) bool { return isHung(i) && i.Kind == KindSandbox })
}

// allHang reports whether every RPC that needs the runtime's state hangs. Version is a constant of the daemon: that it
// still answers does not make the rest alive. A list that was not asked counts as hung, since the kubelet does not ask
// for containers either when the sandboxes do not come.
func allHang(f *Facts) bool {
	n := 0
	for _, name := range []string{RPCStatus, RPCSandboxes, RPCContainers} {
		switch f.RPC[name].Outcome {
		case Hung:
			n++
		case NotAsked:
		default:
			return false
		}
	}
	return n >= 2
}

// crawls reports whether nothing but Version came in time, and Version late: a runtime that gets on, too slowly for the
// deadline that kdiag gave it.
func crawls(f *Facts) bool {
	d, ok := f.RPC[RPCVersion].Fastest()
	return ok && allHang(f) && d >= max(f.Limits.RPCTimeout, f.Limits.SlowList)/SlowCompanyFactor
}

// A silence is a time in which a runtime that had been answering answered nothing.
type Stall struct {
	From      time.Time
	For       time.Duration // how long nothing came, as far as it was watched
	Hung      int           // calls that hung in it
	Recovered bool          // calls were answered after it
}

// silence finds the first time after the probes in which calls hung and nothing at all was answered, not even a pulse. One
// hung object does not make a silence, because others are answered beside it.
func silence(f *Facts) (Stall, bool) {
	calls := laterCalls(f)
	first := firstHung(calls)
	if first == nil || listProbeHung(f) {
		return Stall{}, false
	}
	const inFlight = 20 * time.Millisecond // answers that were on their way when it stopped
	s := Stall{From: first.call.Start}
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
			return Stall{}, false
		}
		if c.pod != "" && c.call.Start.After(s.From) {
			others++
		}
	}
	for _, p := range f.Measurement.Liveness {
		switch {
		case !p.OK() || !p.Start.After(s.From):
		case p.Start.Before(until):
			return Stall{}, false // objects hang, the daemon does not
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
func stoppedForGood(f *Facts) bool {
	m := f.Measurement
	if m == nil || !m.Stopped() {
		return false
	}
	pulse := m.Liveness[len(m.Liveness)-1]
	return !slices.ContainsFunc(laterCalls(f), func(c timed) bool {
		return c.call.OK() && c.call.Start.Add(c.call.Elapsed).After(pulse.Start)
	})
}

// listProbeHung reports whether a list hung from the start, so that later ones add nothing to it.
func listProbeHung(f *Facts) bool {
	for _, p := range f.Measurement.Probes {
		if name := canonical(p.Method); p.Hung() && (name == RPCSandboxes || name == RPCContainers) {
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
func laterCalls(f *Facts) []timed {
	var calls []timed
	for _, name := range []string{RPCSandboxes, RPCContainers} {
		for _, c := range f.RPC[name].Calls {
			if !c.Start.IsZero() && !isProbe(f, c) {
				calls = append(calls, timed{call: c})
			}
		}
	}
	for _, i := range f.Sweep.Made {
		if !i.Call.Start.IsZero() {
			calls = append(calls, timed{call: i.Call, pod: podKey(i)})
		}
	}
	return calls
}

// isProbe reports whether a call is one of the probes that were made side by side at the start.
func isProbe(f *Facts, c crictl.Call) bool {
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

// PodsOf counts the pods that inspections belong to. The kubelet gives up on a pod at its first failing call, so pods,
// not calls, are what a relist pays for.
func PodsOf(some []plegbench.Inspection) int {
	pods := map[string]bool{}
	for _, i := range some {
		pods[podKey(i)] = true
	}
	return len(pods)
}

// stalls reports whether the runtime misses deadlines and goes on nevertheless.
func stalls(f *Facts) bool {
	if f.Pattern.Crawls {
		return true
	}
	if s, ok := f.Pattern.Stall, f.Pattern.Stalled; ok && s.Recovered {
		return true
	}
	if f.RPC[RPCSandboxes].Outcome == Stalled || f.RPC[RPCContainers].Outcome == Stalled {
		return true
	}
	return f.RPC[RPCVersion].Outcome == Hung && f.Calls.AnyList
}
