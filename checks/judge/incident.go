package judge

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/journal"
)

// judgeIncident returns the likely causes of an incident of a log, most likely first, by what the log holds around it.
func judgeIncident(e *journal.Episode) []journal.Cause {
	in := causes.NewIncident(e)
	var all []*causes.LogFinding
	for _, d := range causes.All() {
		if d.FromLog == nil {
			continue
		}
		if f := d.FromLog(in); f != nil {
			all = append(all, f)
		}
	}
	if in.Standstill != nil {
		in.LowerForStandstill(all)
	}
	if !slices.ContainsFunc(all, func(f *causes.LogFinding) bool { return f.Tier < causes.SymptomTier && f.Confidence >= 0.4 }) {
		all = append(all, in.Unexplained())
	}
	// What is likely and can be the root of others goes first, then by confidence.
	slices.SortFunc(all, func(a, b *causes.LogFinding) int {
		byTier, byConfidence := cmp.Compare(a.Tier, b.Tier), cmp.Compare(b.Confidence, a.Confidence)
		switch {
		case a.Confidence >= likelyRoot && b.Confidence >= likelyRoot:
			return cmp.Or(byTier, byConfidence, cmp.Compare(a.Code, b.Code))
		case a.Confidence >= likelyRoot || b.Confidence >= likelyRoot:
			return byConfidence
		}
		return cmp.Or(byConfidence, byTier, cmp.Compare(a.Code, b.Code))
	})
	all[0].AddMissing(in.Unseen()...)
	out := make([]journal.Cause, 0, len(all))
	for _, f := range all {
		f.Confidence = min(max(f.Confidence, 0.05), 0.95)
		out = append(out, f.Cause)
	}
	return out
}

// likelyRoot is the confidence from which a cause of a lower tier goes before a more certain one of a higher tier.
const likelyRoot = 0.5
