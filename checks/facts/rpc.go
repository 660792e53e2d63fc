package facts

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// The RPCs that the judge distinguishes.
const (
	RPCVersion    = "Version"
	RPCStatus     = "Status"
	RPCSandboxes  = "ListPodSandbox"
	RPCContainers = "ListContainers"
	RPCImages     = "ListImages"
	RPCImageFs    = "ImageFsInfo"
)

// ConditionRuntimeReady and ConditionNetworkReady are the two conditions that CRI requires.
const (
	ConditionRuntimeReady = "RuntimeReady"
	ConditionNetworkReady = "NetworkReady"
)

// shortDeadline is the RPC deadline below which a busy machine alone can make all calls look hung.
const shortDeadline = 2 * time.Second

// deriveCalls works out what the RPCs show as a whole.
func deriveCalls(f *Facts) {
	c, m := &f.Calls, f.Measurement
	c.Connected = m != nil && m.Connect.State == crictl.ConnectOK
	sandboxes, containers := f.RPC[RPCSandboxes].Outcome.Alive(), f.RPC[RPCContainers].Outcome.Alive()
	c.AnyList = sandboxes || containers
	c.BothLists = m != nil && (sandboxes || m.Sandboxes != nil && m.Sandboxes.Complete) &&
		(containers || m.Containers != nil && m.Containers.Complete)
	for _, name := range []string{RPCSandboxes, RPCContainers} {
		if r := f.RPC[name]; r.Outcome == Hung {
			c.HungLists = append(c.HungLists, r)
		}
	}
	for _, name := range []string{RPCVersion, RPCStatus, RPCSandboxes, RPCContainers} {
		last := f.RPC[name].Last()
		if c.Connected && !c.AnyList && c.NotCRI == nil && last.Code == crictl.Unimplemented {
			c.NotCRI = &last
		}
	}
	c.KubeletTimeout, c.Threshold = plegbench.RequestTimeout, plegbench.RelistThreshold
	if k := f.Kubelet; k != nil {
		c.KubeletTimeout = cmp.Or(k.RequestTimeout, c.KubeletTimeout)
		if k.EventedPLEG {
			c.Threshold = plegbench.EventedRelistThreshold
		}
	}
	if s := f.Summary; s != nil {
		c.KubeletTimeout = cmp.Or(units.ToDuration(s.RequestTimeoutSeconds), c.KubeletTimeout)
		c.Threshold = cmp.Or(units.ToDuration(s.ThresholdSeconds), c.Threshold)
		if s.List != nil && s.List.P50Seconds != nil {
			c.ListMedian = units.ToDuration(*s.List.P50Seconds)
		}
	}
}

// An Outcome sums up all calls of one RPC over a whole measurement.
type Outcome uint8

// The outcomes.
const (
	NotAsked Outcome = iota // never asked, or cut short by the end of the command
	Answered                // the last call was answered, and none hung
	Hung                    // the last call hung
	Stalled                 // some calls hung, and later ones were answered
	Flaky                   // some calls failed, and later ones were answered
	Failed                  // the last call was answered with an error
)

// Alive reports whether the RPC is answered now.
func (o Outcome) Alive() bool { return o == Answered || o == Stalled || o == Flaky }

// An RPC is all calls of one RPC, in the order in which they were made.
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
func (r RPC) HungCalls() int { return count(r.Calls, crictl.Call.Hung) }

// FailedCalls returns how many calls were answered with an error.
func (r RPC) FailedCalls() int { return count(r.Calls, IsFailure) }

// count returns how many there are; they may be a hundred thousand, of which no list is made.
func count[T any](all []T, is func(T) bool) int {
	n := 0
	for _, x := range all {
		if is(x) {
			n++
		}
	}
	return n
}

// filter returns what keep accepts, nil for nothing.
func filter[T any](all []T, keep func(T) bool) []T {
	var some []T
	for _, x := range all {
		if keep(x) {
			some = append(some, x)
		}
	}
	return some
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

// callsOf gathers the calls of one RPC from the probes and the relists of the series.
func callsOf(f *Facts, name string) RPC {
	r := RPC{Name: name}
	if f.Measurement == nil {
		return r
	}
	for _, c := range f.Measurement.Probes {
		r.add(c)
	}
	for _, s := range f.Measurement.Samples {
		r.add(s.Sandboxes)
		r.add(s.Containers)
	}
	last := r.Last()
	switch {
	case len(r.Calls) == 0:
	case last.Hung():
		r.Outcome = Hung
	case !last.OK():
		r.Outcome = Failed
	case r.HungCalls() > 0:
		r.Outcome = Stalled
	case r.FailedCalls() > 0:
		r.Outcome = Flaky
	default:
		r.Outcome = Answered
	}
	return r
}

// add appends a call unless it is of another RPC, was not made, was cut short, or is the same call once more: the
// first relist of a series is the pair of lists among the probes.
func (r *RPC) add(c crictl.Call) {
	if canonical(c.Method) != r.Name || c.Code == "" || c.Code == crictl.Canceled {
		return
	}
	for _, have := range r.Calls {
		if !c.Start.IsZero() && have.Start.Equal(c.Start) && have.Elapsed == c.Elapsed {
			return
		}
	}
	r.Calls = append(r.Calls, c)
}

// CallLine is the sentence about one call: "ListContainers hangs (no reply in 5s)".
func CallLine(c crictl.Call) string {
	name, took := canonical(c.Method), units.Duration(c.Elapsed)
	switch {
	case c.Hung():
		return name + " hangs (no reply in " + took + ")"
	case c.OK():
		return name + " answered in " + took
	}
	line := fmt.Sprintf("%s failed after %s: %s", name, took, Clean(string(c.Code)))
	if c.Err != "" {
		line += ": " + Clean(c.Err)
	}
	return line
}

// EveryCall yields all calls of a measurement that were made, whatever their RPC. They may be a hundred thousand, so no
// list of them is kept.
func EveryCall(f *Facts) iter.Seq[crictl.Call] {
	return func(yield func(crictl.Call) bool) {
		for _, name := range []string{RPCVersion, RPCStatus, RPCSandboxes, RPCContainers, RPCImages, RPCImageFs} {
			for _, c := range f.RPC[name].Calls {
				if !yield(c) {
					return
				}
			}
		}
		for _, i := range f.Sweep.Made {
			if !yield(i.Call) {
				return
			}
		}
	}
}

// CallError returns the first call whose error has the code and one of the phrases; no phrase matches any text. It is
// nil for none.
func CallError(f *Facts, code crictl.Code, phrases ...string) *crictl.Call {
	for c := range EveryCall(f) {
		if c.Code == code && Says(c.Err, phrases...) {
			return &c
		}
	}
	return nil
}

// wentAway returns the call that found the runtime gone, if nothing was answered after it.
func wentAway(f *Facts) *crictl.Call {
	gone := CallError(f, crictl.Unavailable, "connection refused", "no such file", "reading from server",
		"transport is closing", "connection reset", "broken pipe", "eof")
	if gone == nil || !f.Calls.Connected {
		return nil
	}
	for c := range EveryCall(f) {
		if c.OK() && end(c).After(end(*gone)) {
			return nil
		}
	}
	return gone
}

// Says reports whether a text holds one of the phrases, in any case. No phrase matches everything.
func Says(text string, phrases ...string) bool {
	text = strings.ToLower(text)
	return len(phrases) == 0 || slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
}

// ProcessesOf returns the host's processes of one role.
func ProcessesOf(f *Facts, role host.Role) []host.Process {
	return filter(f.Processes, func(p host.Process) bool { return p.Role == role })
}

// AgeOf returns how long a process has been running, 0 when that is not known.
func AgeOf(f *Facts, p host.Process) time.Duration {
	if p.Started.IsZero() || f.Now.Before(p.Started) {
		return 0
	}
	return f.Now.Sub(p.Started)
}

// deriveSweep works out the outcomes of the status calls.
func deriveSweep(f *Facts) {
	s := &f.Sweep
	if m := f.Measurement; m != nil {
		s.Made = m.Sweep.Inspections
		cut := func(i plegbench.Inspection) bool { return i.Call.Code == "" || i.Call.Code == crictl.Canceled }
		if slices.ContainsFunc(s.Made, cut) { // usually not: without a copy of what may be a hundred thousand
			s.Made = slices.DeleteFunc(slices.Clone(s.Made), cut)
		}
	}
	s.Answered = count(s.Made, IsAnswered)
	s.Hung = InspectionsThat(f, isHung)
	s.Running = sweepCounts(f)
	if f.Summary != nil {
		s.Summary = f.Summary.Sweep
	}
	if s.Summary != nil && s.Summary.P50Seconds != nil {
		s.Median = units.ToDuration(*s.Summary.P50Seconds)
	}
	f.Calls.Gone = wentAway(f)
}

// InspectionsThat returns the made status calls for which ok is true.
func InspectionsThat(f *Facts, ok func(plegbench.Inspection) bool) []plegbench.Inspection {
	return filter(f.Sweep.Made, ok)
}

// isHung reports whether an inspection missed its deadline.
func isHung(i plegbench.Inspection) bool { return i.Call.Hung() }

// IsAnswered reports whether an inspection brought the status that was asked for.
func IsAnswered(i plegbench.Inspection) bool { return i.Call.OK() }

// isNotFound reports whether the runtime does not know the object: the ordinary race with a removal, unless it is many.
func isNotFound(i plegbench.Inspection) bool { return i.Call.Code == crictl.NotFound }

// IsRefused reports whether an inspection failed because of the runtime and not of the object: it is starting, or its
// connection went away. A shim that is gone is Unavailable as well, in other words.
func IsRefused(i plegbench.Inspection) bool {
	return i.Call.Code == crictl.Unavailable && Says(i.Call.Err, "not initialized", "connection", "transport",
		"reading from server", "broken pipe", "no such file", "eof")
}

// IsFailed reports whether an inspection came back with an error that is about its object.
func IsFailed(i plegbench.Inspection) bool {
	return IsFailure(i.Call) && !isNotFound(i) && !IsRefused(i)
}

// The number and the share of running objects that may be gone by the time that their status is asked: pods end while
// kdiag looks. More than both is a runtime whose lists and statuses disagree.
const (
	fewGone     = 5
	shareOfGone = 0.2
)

// SweepCounts counts the outcomes of the status calls about running containers and ready sandboxes.
type SweepCounts struct {
	All, Asked, Answered, Gone int
}

// Disagrees reports whether too many of the objects that the newest lists call running are not found by their id.
func (r SweepCounts) Disagrees() bool {
	return r.Gone > fewGone && float64(r.Gone) > shareOfGone*float64(r.Asked)
}

// Disagreement is the sentence that lists and statuses disagree.
func (r SweepCounts) Disagreement() string {
	return fmt.Sprintf("lists and statuses disagree: %s of %s that run by the lists %s not found by id",
		units.Number(r.Gone), units.Count(r.Asked, "object"), units.Plural(r.Gone, "is", "are"))
}

// Problems lists what stands between these figures and a healthy node.
func (r SweepCounts) Problems() []string {
	var lines []string
	if n := r.All - r.Answered - r.Gone; n > 0 {
		lines = append(lines, fmt.Sprintf("the status of %s of %s that run was not asked or not answered",
			units.Number(n), units.Count(r.All, "object")))
	}
	if r.Disagrees() {
		lines = append(lines, r.Disagreement())
	}
	return lines
}

// sweepCounts counts the status calls about what the newest lists call running or ready.
func sweepCounts(f *Facts) SweepCounts {
	var all SweepCounts
	asked := map[string]plegbench.Inspection{}
	for _, i := range f.Sweep.Made {
		asked[i.ID] = i
	}
	for e := range Entries(f, RPCSandboxes, RPCContainers) {
		if !e.Runs {
			continue
		}
		all.All++
		i, ok := asked[e.ID]
		if !ok {
			continue
		}
		all.Asked++
		if IsAnswered(i) {
			all.Answered++
		} else if isNotFound(i) {
			all.Gone++
		}
	}
	return all
}

// sandboxesOf returns the sandboxes of the newest list, none when it did not come.
func sandboxesOf(f *Facts) []crictl.PodSandbox {
	if f.Measurement == nil || f.Measurement.Sandboxes == nil {
		return nil
	}
	return f.Measurement.Sandboxes.Sandboxes
}

// containersOf returns the containers of the newest list, none when it did not come.
func containersOf(f *Facts) []crictl.Container {
	if f.Measurement == nil || f.Measurement.Containers == nil {
		return nil
	}
	return f.Measurement.Containers.Containers
}
