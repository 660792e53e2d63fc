package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// PodsNotStopping is the code of this cause.
const PodsNotStopping = "PodsNotStopping"

func recognisePodsNotStopping(f *facts.Facts) *Finding {
	pods := f.Pods.NotStopping
	wrong := podsLabel(pods) + units.Plural(len(pods), " does", " do") + " not stop"
	if !slices.ContainsFunc(pods, func(t facts.PodTrouble) bool { return t.Stage != facts.StillMounted }) {
		wrong = "a volume of " + podsLabel(pods) + " stays mounted"
	}
	return troubled(f, pods, false, wrong)
}
