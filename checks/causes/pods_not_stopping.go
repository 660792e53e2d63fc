package causes

import (
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// PodsNotStopping is the code of this cause.
const PodsNotStopping = "PodsNotStopping"

var podsNotStopping = Definition{Code: PodsNotStopping, SeenLate: true, Recognise: recognisePodsNotStopping}

func recognisePodsNotStopping(f *facts.Facts) *Finding {
	pods := f.Pods.NotStopping
	return troubled(f, pods, false, podsLabel(pods)+units.Plural(len(pods), " does", " do")+" not stop")
}
