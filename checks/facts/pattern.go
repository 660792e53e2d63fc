package facts

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// Sizes from which a list's time may be its size's: 5,000 exited containers come in 38 ms (docs/bench), 8
// microseconds each. Sixty times that is still honest on a loaded node; below 5,000 objects a slow list never is.
const (
	ManyObjects     = 5000
	honestPerObject = 500 * time.Microsecond
	// a call that was given up after fifty times what others take hangs, however short that was
	quickCompanyFactor = 50
	SlowCompanyFactor  = 4 // all is slow when even the quickest RPC needs a quarter of SlowList
)

// derivePattern works out how the runtime as a whole behaves.
func derivePattern(f *Facts) {
	p, l := &f.Pattern, f.Limits
	images, fs := f.RPC[RPCImages].Outcome, f.RPC[RPCImageFs].Outcome
	p.OnlyImageList = images == Hung && fs.Alive()
	// Containers may need the image store, sandboxes never do.
	p.ImagesHold = (images == Hung || fs == Hung) && !slices.ContainsFunc(f.Sweep.Hung,
		func(i plegbench.Inspection) bool { return i.Kind == KindSandbox })
	p.AllSlow = allSlow(f)
	d, answered := f.RPC[RPCVersion].Fastest()
	p.Crawls = answered && allHang(f) && d >= max(l.RPCTimeout, l.SlowList)/SlowCompanyFactor ||
		len(f.Calls.HungLists) > 0 && p.AllSlow
	f.Calls.Impatient = impatient(f)
	list, n := f.Calls.ListMedian, f.Lists.Objects
	honest := n >= ManyObjects && list <= time.Duration(n)*honestPerObject
	p.SlowLists = f.Calls.ListMedian > 0 && list >= l.SlowList && !honest
	p.SlowStatuses = f.Sweep.Median > 0 && f.Sweep.Median >= l.SlowStatus
	p.Silence = silenceOf(f)
	p.Stalls = p.Crawls || p.Silence != nil && p.Silence.Recovered || f.RPC[RPCSandboxes].Outcome == Stalled ||
		f.RPC[RPCContainers].Outcome == Stalled || f.RPC[RPCVersion].Outcome == Hung && f.Calls.AnyList
	p.Hang = wholeHang(f)
	p.Slow = f.Calls.Connected && p.Hang == HangNone && (p.SlowLists || p.SlowStatuses || p.Stalls)
	if f.Calls.Connected && f.Measurement.Status != nil && f.RPC[RPCStatus].Outcome.Alive() {
		ready, ok := f.Measurement.Status.Condition(ConditionRuntimeReady)
		p.Well = ok && ready.Status && f.Calls.BothLists && !f.Target.OtherEndpoint && !p.Stalls &&
			len(f.Sweep.Hung) == 0
	}
}

// impatient reports whether a call that was given up may only be slow: the deadline was shorter than kdiag's usual one
// and nothing shows that others are far quicker, or so short that a busy machine alone can explain it.
func impatient(f *Facts) bool {
	given, hung := f.Limits.RPCTimeout, f.Sweep.Hung
	quick := len(hung) > 0 && len(f.Calls.HungLists) == 0 && f.Sweep.Median > 0 &&
		f.Sweep.Median < given/quickCompanyFactor && len(hung) <= f.Sweep.Answered
	silent := f.RPC[RPCVersion].Outcome == Hung // no slowness that is worth another name
	return given < shortDeadline/2 || given < shortDeadline && !quick ||
		given < checks.DefaultLimits().RPCTimeout && !quick && !silent
}

// allSlow reports whether even the quickest of the plain RPCs is slow: then the daemon as a whole does not get on.
func allSlow(f *Facts) bool {
	var times []time.Duration
	for _, name := range []string{RPCVersion, RPCStatus, RPCSandboxes, RPCContainers} {
		if d, ok := f.RPC[name].Fastest(); ok {
			times = append(times, d)
		}
	}
	return len(times) > 1 && slices.Min(times) >= f.Limits.SlowList/SlowCompanyFactor
}

// A Hang is the way in which a whole runtime does not answer.
type Hang uint8

// The ways.
const (
	HangNone    Hang = iota
	HangSilent       // connects, but the transport sends nothing: no process runs behind it
	HangBacklog      // the listen queue is full: nothing accepts any more
	HangAll          // the transport answers, every RPC misses its deadline
	HangMidway       // it answered, and then stopped answering for good while it was measured
	HangMost         // the lists answer, the status calls of most objects do not
	HangBehind       // a daemon behind cri-dockerd is stopped, and what needs it hangs
)

// The share and the number of hung status calls from which the trouble is the runtime's and not that of single
// objects: one broken shim, or one dead volume under a few pods, does not reach both.
const (
	MostOfStatuses = 0.5
	ManyOfStatuses = 20
)

// wholeHang returns in which way the whole runtime hangs, HangNone if it does not. Causes that single RPCs or objects
// point at are explained by it and are not reported beside it.
func wholeHang(f *Facts) Hang {
	if f.Measurement == nil {
		return HangNone
	}
	p := f.Pattern
	switch state := f.Measurement.Connect.State; {
	case state == crictl.ConnectSilent:
		return HangSilent
	case state == crictl.ConnectBacklogged:
		return HangBacklog
	case f.Calls.Connected && f.Target.Docker.Stopped != nil:
		return HangBehind
	case state != crictl.ConnectOK, p.Crawls:
		return HangNone
	case allHang(f):
		return HangAll
	case p.Silence != nil && !p.Silence.Recovered:
		return HangMidway
	case mostHang(f) && f.Calls.AnyList && !p.ImagesHold:
		return HangMost
	}
	return HangNone
}

// mostHang reports whether so many status calls hang that no single object explains it: most of many, or all of them in
// more than one pod.
func mostHang(f *Facts) bool {
	all, hung := len(f.Sweep.Made), len(f.Sweep.Hung)
	if hung == all && len(f.Calls.HungLists) == 0 {
		return PodsOf(f.Sweep.Hung) > 1
	}
	return hung > ManyOfStatuses && float64(hung) >= MostOfStatuses*float64(all)
}

// allHang reports whether every RPC that needs the runtime's state hangs. Version is a constant of the daemon: that it
// still answers does not make the rest alive. A list that was not asked counts as hung, since the kubelet does not ask
// for containers either when the sandboxes do not come.
func allHang(f *Facts) bool {
	outcomes := []Outcome{f.RPC[RPCStatus].Outcome, f.RPC[RPCSandboxes].Outcome, f.RPC[RPCContainers].Outcome}
	hung := count(outcomes, func(o Outcome) bool { return o == Hung })
	return hung >= 2 && hung+count(outcomes, func(o Outcome) bool { return o == NotAsked }) == len(outcomes)
}

// A Silence is a time in which a runtime that had been answering answered nothing, not even Version.
type Silence struct {
	From      time.Time
	For       time.Duration // how long nothing came, as far as it was watched
	Hung      int           // calls that hung in it
	Recovered bool          // calls were answered after it
}

// silenceOf finds the first time after the probes in which calls hung and the Version that was asked beside them
// (plegbench.Measurement.Liveness) did too. A runtime of which only some objects hang answers Version.
func silenceOf(f *Facts) *Silence {
	m := f.Measurement
	if m == nil || !slices.ContainsFunc(m.Probes, crictl.Call.OK) {
		return nil
	}
	i := slices.IndexFunc(m.Liveness, crictl.Call.Hung)
	if i < 0 {
		return nil
	}
	version := m.Liveness[i]
	s, until := Silence{From: version.Start}, end(version)
	s.Recovered = slices.ContainsFunc(m.Liveness[i:], crictl.Call.OK)
	for c := range EveryCall(f) {
		switch {
		case c.Hung() && end(c).After(version.Start):
			s.Hung++
			if c.Start.Before(s.From) {
				s.From = c.Start
			}
		case c.OK() && end(c).After(end(version)):
			s.Recovered = true
		}
		if c.Hung() && end(c).After(until) {
			until = end(c)
		}
	}
	s.For = until.Sub(s.From)
	return &s
}

// end is when a call ended.
func end(c crictl.Call) time.Time { return c.Start.Add(c.Elapsed) }

// podKey identifies a pod: by UID, else by sandbox, else by the object itself.
func podKey(i plegbench.Inspection) string { return cmp.Or(i.Pod.UID, i.SandboxID, i.ID) }

// PodsOf counts the pods that inspections belong to. The kubelet gives up on a pod at its first failing call, so pods,
// not calls, are what a relist pays for.
func PodsOf(some []plegbench.Inspection) int {
	pods := map[string]bool{}
	for _, i := range some {
		pods[podKey(i)] = true
	}
	return len(pods)
}
