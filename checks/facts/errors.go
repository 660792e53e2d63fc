package facts

import (
	"time"

	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// Errors are the error records of the kubelet and the runtime.
type Errors struct {
	// Repeating are the errors that have been logged again and again for ErrorsFrom at least, until now, the most often
	// first: no two records lie farther apart than journal.ErrorPause. A healthy daemon writes none of them, and they are
	// no fault of a workload alone.
	Repeating []journal.ErrorGroup
}

// ErrorsFrom is for how long an error must have been repeated to be no passing trouble, such as that of a start: three
// pauses of 20 s, in which the kubelet reads its static manifests again (fileCheckFrequency), and a little more.
const ErrorsFrom = 70 * time.Second

func deriveErrors(f *Facts) {
	if !f.Log.Read || f.Target.Simulated {
		return
	}
	for _, g := range f.Journal.Errors {
		ofOther := g.Lane == string(signature.Runtime) && !f.Log.SameRuntime
		if g.Severity == "error" && !ofOther && g.Since != nil && Fresh(f, g.Last, journal.ErrorPause) &&
			g.Last.Sub(*g.Since) >= ErrorsFrom {
			f.Errors.Repeating = append(f.Errors.Repeating, g)
		}
	}
}
