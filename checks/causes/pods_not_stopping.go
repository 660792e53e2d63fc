package causes

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// PodsNotStopping is the code of this cause.
const PodsNotStopping = "PodsNotStopping"

func recognisePodsNotStopping(f *facts.Facts) *Finding {
	pods := f.Pods.NotStopping
	wrong := podsLabel(pods) + units.Plural(len(pods), " does", " do") + " not stop"
	if !slices.ContainsFunc(pods, func(t facts.PodTrouble) bool { return t.Stage != facts.StillMounted }) {
		gone := len(pods) > 0 && strings.Contains(pods[0].Words, "unlinkat ") // a folder, such as of an emptyDir
		wrong = "a volume of " + podsLabel(pods) + ifElse(gone, " cannot be removed", " stays mounted")
	}
	return troubled(f, pods, false, wrong)
}
