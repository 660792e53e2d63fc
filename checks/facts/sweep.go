package facts

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench"
)

// inspections returns the status calls that were made, without those cut short.
func inspections(f *Facts) []plegbench.Inspection {
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

// InspectionsThat returns the made status calls for which ok is true.
func InspectionsThat(f *Facts, ok func(plegbench.Inspection) bool) []plegbench.Inspection {
	var some []plegbench.Inspection
	for _, i := range f.Sweep.Made {
		if ok(i) {
			some = append(some, i)
		}
	}
	return some
}

func hungInspections(f *Facts) []plegbench.Inspection { return InspectionsThat(f, isHung) }

func failedInspections(f *Facts) []plegbench.Inspection { return InspectionsThat(f, IsFailed) }

func refusedInspections(f *Facts) []plegbench.Inspection { return InspectionsThat(f, IsRefused) }

func goneInspections(f *Facts) []plegbench.Inspection { return InspectionsThat(f, isNotFound) }

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
// kdiag looks. More than both, or all of them, is a runtime whose lists and statuses disagree.
const (
	fewGone      = 5
	shareOfGone  = 0.2
	leastForGone = 2 // one object may always have ended
)

// A roll is what became of the status calls about running containers and ready sandboxes.
type SweepCounts struct {
	All, Asked, Answered, Gone int
}

// Disagrees reports whether too many of the objects that the newest lists call running are not found by their id.
func (r SweepCounts) Disagrees() bool {
	if r.Gone < leastForGone {
		return false
	}
	return r.Gone == r.Asked || r.Gone > fewGone && float64(r.Gone) > shareOfGone*float64(r.Asked)
}

// Disagreement says that lists and statuses disagree.
func (r SweepCounts) Disagreement() string {
	return fmt.Sprintf("lists and statuses disagree: %s of %s that run by the lists %s not found by id",
		units.Number(r.Gone), units.Count(r.Asked, "object"), units.Plural(r.Gone, "is", "are"))
}

// seenRunning counts the status calls about what the newest lists call running or ready.
func seenRunning(f *Facts) SweepCounts {
	m := f.Measurement
	var all SweepCounts
	if m == nil {
		return all
	}
	asked := map[string]plegbench.Inspection{}
	for _, i := range f.Sweep.Made {
		asked[i.ID] = i
	}
	note := func(id string) {
		all.All++
		i, ok := asked[id]
		switch {
		case !ok:
			return
		case IsAnswered(i):
			all.Answered++
		case isNotFound(i):
			all.Gone++
		}
		all.Asked++
	}
	if m.Sandboxes != nil {
		for _, s := range m.Sandboxes.Sandboxes {
			if s.State == crictl.SandboxReady {
				note(s.ID)
			}
		}
	}
	if m.Containers != nil {
		for _, c := range m.Containers.Containers {
			if c.State == crictl.ContainerRunning {
				note(c.ID)
			}
		}
	}
	return all
}
