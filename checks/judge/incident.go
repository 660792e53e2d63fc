package judge

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/journal"
)

// likelyRoot is the confidence from which a cause of a lower tier goes before a more certain one of a higher tier.
const likelyRoot = 0.5

// judgeIncident names the likely causes of an incident of a log, most likely first, and the objects that failing calls
// name, by what the log holds around it. Without surroundings, as in a report that was saved, those that it has stay.
func judgeIncident(e *journal.Episode) {
	if e.Surroundings == nil {
		return
	}
	in := causes.NewIncident(e)
	all := in.FromLog()
	// What is likely and can be the root of others goes first, then by confidence.
	slices.SortFunc(all, func(a, b *causes.LogFinding) int {
		byTier, byConfidence := cmp.Compare(a.Tier, b.Tier), cmp.Compare(b.Confidence, a.Confidence)
		if a.Confidence >= likelyRoot && b.Confidence >= likelyRoot {
			return cmp.Or(byTier, byConfidence, cmp.Compare(a.Code, b.Code))
		}
		return cmp.Or(byConfidence, byTier, cmp.Compare(a.Code, b.Code))
	})
	e.Causes, e.Culprits = make([]journal.Cause, 0, len(all)), in.Culprits()
	for _, f := range all {
		f.Confidence = min(max(f.Confidence, 0.05), 0.95)
		e.Causes = append(e.Causes, f.Cause)
	}
}
