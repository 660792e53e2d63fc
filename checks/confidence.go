package checks

import "math"

// The steps of the confidence scale. A cause starts at one of them, and each line against it lowers it.
const (
	Certain = 0.95 // seen directly; nothing else looks like it
	Strong  = 0.8  // the pattern fits, and one discriminator could not be seen
	Fair    = 0.6  // the pattern fits, and so do one or two other causes
	Weak    = 0.4  // consistent with what was seen, no more
)

// What one line of evidence takes off, and where that ends.
const (
	costOfAgainst   = 0.15
	costOfMissing   = 0.05
	mostForMissing  = 0.15 // not looking never makes a cause unlikely
	leastConfidence = 0.1
)

// Agreement is what the kubelet's own log adds to the step of a cause when it agrees with the measurement: as much
// as one missing line takes off. A second witness confirms; it does not decide.
const Agreement = 0.05

// Confidence returns how sure kdiag is of a cause, from 0.1 to 0.95. It starts at step and falls by 0.15 for each line
// of evidence against and by 0.05 for each that is missing, up to three. Equal evidence gives an equal value, so that
// two reports can be compared. It is no probability: it is how much of the pattern was seen. A step that was raised
// because the kubelet's log agrees makes up for what is missing, and never more than certain.
func Confidence(step float64, e Evidence) float64 {
	missing := min(float64(len(e.Missing))*costOfMissing, mostForMissing)
	c := step - float64(len(e.Against))*costOfAgainst - missing
	return math.Round(min(max(c, leastConfidence), Certain)*100) / 100
}
