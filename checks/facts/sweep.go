package facts

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// deriveSweep works out what became of the status calls.
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
	s.Failed = InspectionsThat(f, IsFailed)
	s.Refused = InspectionsThat(f, IsRefused)
	s.Running = sweepCounts(f)
	if f.Summary != nil {
		s.Summary = f.Summary.Sweep
	}
	if s.Summary != nil && s.Summary.P50Seconds != nil {
		s.Median, s.Timed = units.ToDuration(*s.Summary.P50Seconds), true
	}
	f.Calls.Gone, f.Calls.WentAway = wentAway(f)
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
	return i.Call.Code == crictl.Unavailable && ContainsAny(i.Call.Err, []string{
		"not initialized", "connection", "transport", "reading from server", "broken pipe", "no such file", "eof",
	})
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

// SweepCounts is what became of the status calls about running containers and ready sandboxes.
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
	note := func(id string) {
		all.All++
		i, ok := asked[id]
		if !ok {
			return
		}
		all.Asked++
		if IsAnswered(i) {
			all.Answered++
		} else if isNotFound(i) {
			all.Gone++
		}
	}
	for _, s := range sandboxesOf(f) {
		if s.State == crictl.SandboxReady {
			note(s.ID)
		}
	}
	for _, c := range containersOf(f) {
		if c.State == crictl.ContainerRunning {
			note(c.ID)
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
