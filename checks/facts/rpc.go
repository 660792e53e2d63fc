package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// cniTooLong is the age from which a CNI plugin is stuck.
func cniTooLong(f *Facts) time.Duration {
	if f.Limits.CNIPluginTooLong > 0 {
		return f.Limits.CNIPluginTooLong
	}
	return checks.DefaultLimits().CNIPluginTooLong
}

// hungLists returns the lists that hang now, in the order in which a relist asks for them.
func hungLists(f *Facts) []RPC {
	var lists []RPC
	for _, name := range []string{RPCSandboxes, RPCContainers} {
		if r := f.RPC[name]; r.Outcome == Hung {
			lists = append(lists, r)
		}
	}
	return lists
}

// ConditionRuntimeReady and conditionNetworkReady are the two conditions that CRI requires.
const (
	ConditionRuntimeReady = "RuntimeReady"
	ConditionNetworkReady = "NetworkReady"
)

// unimplemented returns a call that shows that CRI v1 is not served: Version, Status or a list is answered with Unimplemented.
func unimplemented(f *Facts) (crictl.Call, bool) {
	if !f.Calls.Connected || f.Calls.AnyList {
		return crictl.Call{}, false
	}
	for _, name := range []string{RPCVersion, RPCStatus, RPCSandboxes, RPCContainers} {
		if c := f.RPC[name].Last(); c.Code == crictl.Unimplemented {
			return c, true
		}
	}
	return crictl.Call{}, false
}

// shortDeadline is the RPC deadline below which a slow runtime is easily taken for a hung one.
const shortDeadline = 2 * time.Second

// impatient reports whether the deadline was so short that a slow runtime may only look hung.
func impatient(f *Facts) bool { return f.Limits.RPCTimeout < shortDeadline }

// CallLine says what became of one call: "ListContainers did not answer in 5.0 s".
func CallLine(c crictl.Call) string {
	name := canonical(c.Method)
	switch {
	case c.Hung():
		return fmt.Sprintf("%s did not answer in %s", name, units.Duration(c.Elapsed))
	case c.OK():
		return fmt.Sprintf("%s answered in %s", name, units.Duration(c.Elapsed))
	}
	if c.Err == "" {
		return fmt.Sprintf("%s failed after %s: %s", name, units.Duration(c.Elapsed), Clean(string(c.Code)))
	}
	return fmt.Sprintf("%s failed after %s: %s: %s", name, units.Duration(c.Elapsed), Clean(string(c.Code)), Clean(c.Err))
}

// statusesAnswered returns how many status calls brought a status.
func statusesAnswered(f *Facts) int {
	n := 0
	for _, i := range f.Sweep.Made {
		if IsAnswered(i) {
			n++
		}
	}
	return n
}

// sweepSummary returns the summary of the sweep, nil if there was none.
func sweepSummary(f *Facts) *plegbench.SweepSummary {
	if f.Summary == nil {
		return nil
	}
	return f.Summary.Sweep
}

// An outcome is what became of all calls of one RPC over a whole measurement.
type Outcome uint8

const (
	NotAsked Outcome = iota // never asked, or cut short by the end of the command
	Answered                // the last call was answered, and none hung
	Hung                    // the last call hung
	Stalled                 // some calls hung, and later ones were answered
	Flaky                   // some calls failed, and later ones were answered
	Failed                  // the last call was answered with an error
)

// String says the outcome in a few words.
func (o Outcome) String() string {
	switch o {
	case Answered:
		return "answers"
	case Hung:
		return "hangs"
	case Stalled:
		return "stalls"
	case Flaky:
		return "fails on and off"
	case Failed:
		return "fails"
	}
	return "was not asked"
}

// Alive reports whether the RPC is answered now.
func (o Outcome) Alive() bool { return o == Answered || o == Stalled || o == Flaky }

// The RPCs that the judge tells apart.
const (
	RPCVersion    = "Version"
	RPCStatus     = "Status"
	RPCSandboxes  = "ListPodSandbox"
	RPCContainers = "ListContainers"
	RPCImages     = "ListImages"
	RPCImageFs    = "ImageFsInfo"
)

// An rpc is all calls of one RPC, in the order in which they were made.
type RPC struct {
	Name    string
	Calls   []crictl.Call
	Outcome Outcome
}

// Last returns the last call that was not cut short; the zero Call if there is none.
func (r RPC) Last() crictl.Call {
	if len(r.Calls) == 0 {
		return crictl.Call{}
	}
	return r.Calls[len(r.Calls)-1]
}

// HungCalls returns how many calls hung.
func (r RPC) HungCalls() int {
	n := 0
	for _, c := range r.Calls {
		if c.Hung() {
			n++
		}
	}
	return n
}

// FailedCalls returns how many calls were answered with an error.
func (r RPC) FailedCalls() int {
	n := 0
	for _, c := range r.Calls {
		if IsFailure(c) {
			n++
		}
	}
	return n
}

// IsFailure reports whether a call came back with an error.
func IsFailure(c crictl.Call) bool { return !c.OK() && !c.Hung() }

// Fastest returns the shortest time of an answered call, and whether one was answered.
func (r RPC) Fastest() (time.Duration, bool) {
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
		return RPCSandboxes
	case "StreamContainers":
		return RPCContainers
	case "StreamImages":
		return RPCImages
	}
	return method
}

// RPC gathers the calls of one RPC from the probes and the relists of the series.
func callsOf(f *Facts, name string) RPC {
	r := RPC{Name: name}
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
		case RPCSandboxes:
			r.add(s.Sandboxes)
		case RPCContainers:
			r.add(s.Containers)
		}
	}
	r.Outcome = outcomeOf(r.Calls)
	return r
}

// add appends a call unless it was not made, was cut short, or is the same call once more: the first relist of a
// series is the pair of lists among the probes.
func (r *RPC) add(c crictl.Call) {
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
func outcomeOf(calls []crictl.Call) Outcome {
	if len(calls) == 0 {
		return NotAsked
	}
	last := calls[len(calls)-1]
	switch {
	case last.Hung():
		return Hung
	case !last.OK():
		return Failed
	case slices.ContainsFunc(calls, crictl.Call.Hung):
		return Stalled
	case slices.ContainsFunc(calls, IsFailure):
		return Flaky
	}
	return Answered
}

// connected reports whether the socket was there and spoke HTTP/2, so that RPCs mean something.
func connected(f *Facts) bool {
	return f.Measurement != nil && f.Measurement.Connect.State == crictl.ConnectOK
}

// anyList reports whether at least one of the two lists is answered.
func anyList(f *Facts) bool {
	return f.RPC[RPCSandboxes].Outcome.Alive() || f.RPC[RPCContainers].Outcome.Alive()
}

// everyCall returns all calls of a measurement that were made, whatever their RPC.
func everyCall(f *Facts) []crictl.Call {
	var calls []crictl.Call
	for _, name := range []string{RPCVersion, RPCStatus, RPCSandboxes, RPCContainers, RPCImages, RPCImageFs} {
		calls = append(calls, f.RPC[name].Calls...)
	}
	for _, i := range f.Sweep.Made {
		calls = append(calls, i.Call)
	}
	return calls
}

// CallError returns the first call whose error has the code and one of the phrases; no phrase matches any text.
func CallError(f *Facts, code crictl.Code, phrases ...string) (crictl.Call, bool) {
	for _, c := range f.Calls.All {
		if c.Code == code && ContainsAny(c.Err, phrases) {
			return c, true
		}
	}
	return crictl.Call{}, false
}

// ContainsAny reports whether s holds one of the phrases, in any case. No phrase matches everything.
func ContainsAny(s string, phrases []string) bool {
	if len(phrases) == 0 {
		return true
	}
	s = strings.ToLower(s)
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(s, p) })
}

// objects returns how many sandboxes and containers the newest lists hold.
func objects(f *Facts) int {
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
func rpcTimeout(f *Facts) time.Duration {
	if f.Limits.RPCTimeout > 0 {
		return f.Limits.RPCTimeout
	}
	return checks.DefaultLimits().RPCTimeout
}

// requestTimeout is the kubelet's deadline for one call.
func requestTimeout(f *Facts) time.Duration {
	if f.Summary != nil && f.Summary.RequestTimeoutSeconds > 0 {
		return units.ToDuration(f.Summary.RequestTimeoutSeconds)
	}
	if f.Kubelet != nil && f.Kubelet.RequestTimeout > 0 {
		return f.Kubelet.RequestTimeout
	}
	return plegbench.RequestTimeout
}

// threshold is the age at which the kubelet calls its PLEG unhealthy.
func threshold(f *Facts) time.Duration {
	if f.Summary != nil && f.Summary.ThresholdSeconds > 0 {
		return units.ToDuration(f.Summary.ThresholdSeconds)
	}
	if f.Kubelet != nil && f.Kubelet.EventedPLEG {
		return plegbench.EventedRelistThreshold
	}
	return plegbench.RelistThreshold
}

// ProcessesOf returns the host's processes of one role.
func ProcessesOf(f *Facts, role host.Role) []host.Process {
	var some []host.Process
	for _, p := range f.Processes {
		if p.Role == role {
			some = append(some, p)
		}
	}
	return some
}

// AgeOf returns how long a process has been running, 0 when that is not known.
func AgeOf(f *Facts, p host.Process) time.Duration {
	if p.Started.IsZero() || f.Now.Before(p.Started) {
		return 0
	}
	return f.Now.Sub(p.Started)
}

// bothLists reports whether both lists were answered, or, refused for their size, were had in parts.
func bothLists(f *Facts) bool {
	m := f.Measurement
	if m == nil {
		return false
	}
	sandboxes := f.RPC[RPCSandboxes].Outcome.Alive() || m.Sandboxes != nil && m.Sandboxes.Complete
	containers := f.RPC[RPCContainers].Outcome.Alive() || m.Containers != nil && m.Containers.Complete
	return sandboxes && containers
}

// CutOff says of an RPC without an outcome for how long it had been asked when the command ended; nothing if it was not asked.
func CutOff(f *Facts, name string) string {
	for _, c := range f.Measurement.Probes {
		if canonical(c.Method) == name && c.Code == crictl.Canceled && c.Elapsed > 0 {
			return fmt.Sprintf("%s had not answered after %s, when the command ended", name, units.Duration(c.Elapsed))
		}
	}
	return ""
}

// ConnectProblem says why nothing could be asked; empty when it could.
func ConnectProblem(c crictl.Connect) string {
	if c.TTRPC {
		return "the socket is containerd's ttrpc socket, for its shims, and not its CRI socket"
	}
	switch c.State {
	case crictl.ConnectOK:
		return ""
	case crictl.ConnectDenied:
		return "this user may not open the runtime's socket: " + cmp.Or(Clean(c.Err), "permission denied")
	case crictl.ConnectNotSocket:
		return "the endpoint is not a socket: " + cmp.Or(Clean(c.Err), "another kind of file")
	case crictl.ConnectCanceled:
		return "the command ended before the socket answered"
	case "":
		return "the socket was not tried"
	}
	return "the socket was found " + Clean(string(c.State)) + ": " + cmp.Or(Clean(c.Err), "no further word")
}

// Problems says what stands between these figures and a healthy node.
func (r SweepCounts) Problems() []string {
	var lines []string
	if n := r.All - r.Asked; n > 0 {
		lines = append(lines, fmt.Sprintf("the status of %s of %s that run was not asked", units.Number(n), units.Count(r.All, "object")))
	}
	if n := r.Asked - r.Answered - r.Gone; n > 0 {
		lines = append(lines, fmt.Sprintf("the status of %s of %s that run was not answered", units.Number(n), units.Count(r.All, "object")))
	}
	if r.Disagrees() {
		lines = append(lines, r.Disagreement())
	}
	return lines
}
