package checks

import (
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// An outcome is what became of all calls of one RPC over a whole measurement.
type outcome uint8

const (
	notAsked outcome = iota // never asked, or cut short by the end of the command
	answered                // the last call was answered, and none hung
	hung                    // the last call hung
	stalled                 // some calls hung, and later ones were answered
	flaky                   // some calls failed, and later ones were answered
	failed                  // the last call was answered with an error
)

// String says the outcome in a few words.
func (o outcome) String() string {
	switch o {
	case answered:
		return "answers"
	case hung:
		return "hangs"
	case stalled:
		return "stalls"
	case flaky:
		return "fails on and off"
	case failed:
		return "fails"
	}
	return "was not asked"
}

// alive reports whether the RPC is answered now.
func (o outcome) alive() bool { return o == answered || o == stalled || o == flaky }

// The RPCs that the judge tells apart.
const (
	rpcVersion    = "Version"
	rpcStatus     = "Status"
	rpcSandboxes  = "ListPodSandbox"
	rpcContainers = "ListContainers"
	rpcImages     = "ListImages"
	rpcImageFs    = "ImageFsInfo"
)

// An rpc is all calls of one RPC, in the order in which they were made.
type rpc struct {
	Name    string
	Calls   []crictl.Call
	Outcome outcome
}

// last returns the last call that was not cut short; the zero Call if there is none.
func (r rpc) last() crictl.Call {
	if len(r.Calls) == 0 {
		return crictl.Call{}
	}
	return r.Calls[len(r.Calls)-1]
}

// hungCalls returns how many calls hung.
func (r rpc) hungCalls() int {
	n := 0
	for _, c := range r.Calls {
		if c.Hung() {
			n++
		}
	}
	return n
}

// failedCalls returns how many calls were answered with an error.
func (r rpc) failedCalls() int {
	n := 0
	for _, c := range r.Calls {
		if isFailure(c) {
			n++
		}
	}
	return n
}

// isFailure reports whether a call came back with an error.
func isFailure(c crictl.Call) bool { return !c.OK() && !c.Hung() }

// fastest returns the shortest time of an answered call, and whether one was answered.
func (r rpc) fastest() (time.Duration, bool) {
	var d time.Duration
	found := false
	for _, c := range r.Calls {
		if c.OK() && (!found || c.Elapsed < d) {
			d, found = c.Elapsed, true
		}
	}
	return d, found
}

// canonical returns the name under which a call is judged: streaming lists count as the lists that they replace.
func canonical(method string) string {
	switch method {
	case "StreamPodSandboxes":
		return rpcSandboxes
	case "StreamContainers":
		return rpcContainers
	case "StreamImages":
		return rpcImages
	}
	return method
}

// rpc gathers the calls of one RPC from the probes and the relists of the series.
func (f *Facts) rpc(name string) rpc {
	r := rpc{Name: name}
	if f.Measurement == nil {
		return r
	}
	for _, c := range f.Measurement.Probes {
		if canonical(c.Method) == name {
			r.add(c)
		}
	}
	for _, s := range f.Measurement.Samples {
		switch name {
		case rpcSandboxes:
			r.add(s.Sandboxes)
		case rpcContainers:
			r.add(s.Containers)
		}
	}
	r.Outcome = outcomeOf(r.Calls)
	return r
}

// add appends a call unless it was not made, was cut short, or is the same call once more: the first relist of a
// series is the pair of lists among the probes.
func (r *rpc) add(c crictl.Call) {
	if c.Code == "" || c.Code == crictl.Canceled {
		return
	}
	for _, have := range r.Calls {
		if !c.Start.IsZero() && have.Start.Equal(c.Start) && have.Elapsed == c.Elapsed {
			return
		}
	}
	r.Calls = append(r.Calls, c)
}

// outcomeOf judges calls in the order in which they were made.
func outcomeOf(calls []crictl.Call) outcome {
	if len(calls) == 0 {
		return notAsked
	}
	last := calls[len(calls)-1]
	switch {
	case last.Hung():
		return hung
	case !last.OK():
		return failed
	case slices.ContainsFunc(calls, crictl.Call.Hung):
		return stalled
	case slices.ContainsFunc(calls, isFailure):
		return flaky
	}
	return answered
}

// connected reports whether the socket was there and spoke HTTP/2, so that RPCs mean something.
func (f *Facts) connected() bool {
	return f.Measurement != nil && f.Measurement.Connect.State == crictl.ConnectOK
}

// anyList reports whether at least one of the two lists is answered.
func (f *Facts) anyList() bool {
	return f.rpc(rpcSandboxes).Outcome.alive() || f.rpc(rpcContainers).Outcome.alive()
}

// inspections returns the status calls that were made, without those cut short.
func (f *Facts) inspections() []plegbench.Inspection {
	if f.Measurement == nil {
		return nil
	}
	cut := func(i plegbench.Inspection) bool { return i.Call.Code == "" || i.Call.Code == crictl.Canceled }
	all := f.Measurement.Sweep.Inspections
	if !slices.ContainsFunc(all, cut) {
		return all // the usual case, without a copy of what may be a hundred thousand
	}
	return slices.DeleteFunc(slices.Clone(all), cut)
}

// inspectionsThat returns the made status calls for which ok is true.
func (f *Facts) inspectionsThat(ok func(plegbench.Inspection) bool) []plegbench.Inspection {
	var some []plegbench.Inspection
	for _, i := range f.inspections() {
		if ok(i) {
			some = append(some, i)
		}
	}
	return some
}

// isHung reports whether an inspection missed its deadline.
func isHung(i plegbench.Inspection) bool { return i.Call.Hung() }

// isAnswered reports whether an inspection brought the status that was asked for.
func isAnswered(i plegbench.Inspection) bool { return i.Call.OK() }

// isNotFound reports whether the runtime does not know the object: the ordinary race with a removal, unless it is many.
func isNotFound(i plegbench.Inspection) bool { return i.Call.Code == crictl.NotFound }

// isRefused reports whether an inspection failed because of the runtime and not of the object: it is starting, or its
// connection went away. A shim that is gone is Unavailable as well, in other words.
func isRefused(i plegbench.Inspection) bool {
	return i.Call.Code == crictl.Unavailable && containsAny(i.Call.Err, []string{
		"not initialized", "connection", "transport", "reading from server", "broken pipe", "no such file", "eof",
	})
}

// isFailed reports whether an inspection came back with an error that is about its object.
func isFailed(i plegbench.Inspection) bool {
	return isFailure(i.Call) && !isNotFound(i) && !isRefused(i)
}

// everyCall returns all calls of a measurement that were made, whatever their RPC.
func (f *Facts) everyCall() []crictl.Call {
	var calls []crictl.Call
	for _, name := range []string{rpcVersion, rpcStatus, rpcSandboxes, rpcContainers, rpcImages, rpcImageFs} {
		calls = append(calls, f.rpc(name).Calls...)
	}
	for _, i := range f.inspections() {
		calls = append(calls, i.Call)
	}
	return calls
}

// callError returns the first call whose error has the code and one of the phrases; no phrase matches any text.
func (f *Facts) callError(code crictl.Code, phrases ...string) (crictl.Call, bool) {
	for _, c := range f.everyCall() {
		if c.Code == code && containsAny(c.Err, phrases) {
			return c, true
		}
	}
	return crictl.Call{}, false
}

// containsAny reports whether s holds one of the phrases, in any case. No phrase matches everything.
func containsAny(s string, phrases []string) bool {
	if len(phrases) == 0 {
		return true
	}
	s = strings.ToLower(s)
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(s, p) })
}

// objects returns how many sandboxes and containers the newest lists hold.
func (f *Facts) objects() int {
	n := 0
	if f.Measurement == nil {
		return 0
	}
	if l := f.Measurement.Sandboxes; l != nil {
		n += len(l.Sandboxes)
	}
	if l := f.Measurement.Containers; l != nil {
		n += len(l.Containers)
	}
	return n
}

// rpcTimeout is the deadline that the calls were given.
func (f *Facts) rpcTimeout() time.Duration {
	if f.Limits.RPCTimeout > 0 {
		return f.Limits.RPCTimeout
	}
	return DefaultLimits().RPCTimeout
}

// requestTimeout is the kubelet's deadline for one call.
func (f *Facts) requestTimeout() time.Duration {
	if f.Summary != nil && f.Summary.RequestTimeoutSeconds > 0 {
		return units.ToDuration(f.Summary.RequestTimeoutSeconds)
	}
	if f.Kubelet != nil && f.Kubelet.RequestTimeout > 0 {
		return f.Kubelet.RequestTimeout
	}
	return plegbench.RequestTimeout
}

// threshold is the age at which the kubelet calls its PLEG unhealthy.
func (f *Facts) threshold() time.Duration {
	if f.Summary != nil && f.Summary.ThresholdSeconds > 0 {
		return units.ToDuration(f.Summary.ThresholdSeconds)
	}
	if f.Kubelet != nil && f.Kubelet.EventedPLEG {
		return plegbench.EventedRelistThreshold
	}
	return plegbench.RelistThreshold
}

// processes returns the host's processes of one role.
func (f *Facts) processes(role host.Role) []host.Process {
	var some []host.Process
	for _, p := range f.Processes {
		if p.Role == role {
			some = append(some, p)
		}
	}
	return some
}

// age returns how long a process has been running, 0 when that is not known.
func (f *Facts) age(p host.Process) time.Duration {
	if p.Started.IsZero() || f.Now.Before(p.Started) {
		return 0
	}
	return f.Now.Sub(p.Started)
}
