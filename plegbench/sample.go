package plegbench

import (
	"math"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// The strata are sandboxes and containers, each that run and that do not: how long a status takes depends on both.
const strata = 4

// stratum returns the index of a stratum.
func stratum(container, runs bool) (group int) {
	if container {
		group = 2
	}
	if runs {
		group++
	}
	return group
}

// stratumOf returns the stratum of an inspected object.
func stratumOf(in *Inspection) int {
	running := in.State == crictl.ContainerRunning.String() || in.State == crictl.SandboxReady.String()
	return stratum(in.Kind == KindContainer, running)
}

// The interval is the mean and 2.58 standard errors to each side: 99 % of a normal distribution, by Student's still
// 95 % with six answers, and about as much where single times are far from the mean. Of fewer in all, nothing is known;
// a kind of fewer has the variance of all.
const (
	standardErrors = 2.58
	leastAnswers   = 6
)

// answers sum up the times of the answered status calls of one stratum. A call that failed at once is no answer.
type answers struct {
	n        int
	mean     time.Duration
	variance float64 // of a single time, in seconds squared; NaN when it is not known
}

// answersOf sums up each stratum; one of too few answers is taken to be as all of its kind.
func answersOf(inspections []Inspection) (all [strata]answers) {
	var times [strata][]float64 // in seconds
	for i := range inspections {
		if c := &inspections[i].Call; answered(*c) {
			group := stratumOf(&inspections[i])
			times[group] = append(times[group], c.Elapsed.Seconds())
		}
	}
	for group := range all {
		some := times[group]
		if len(some) < leastAnswers {
			some = slices.Concat(times[group&^1], times[group|1])
		}
		if len(some) == 0 {
			continue
		}
		alike := some
		if len(alike) < leastAnswers {
			alike = slices.Concat(times[:]...)
		}
		all[group] = answers{
			n: len(some), mean: time.Duration(mean(some) * float64(time.Second)), variance: variance(alike),
		}
	}
	return all
}

// variance estimates the variance of a population from a sample of times.
func variance(times []float64) float64 {
	if len(times) < leastAnswers {
		return math.NaN()
	}
	m, squares := mean(times), 0.0
	for _, x := range times {
		squares += (x - m) * (x - m)
	}
	return squares / float64(len(times)-1)
}

// around returns the range of a cost of which part is guessed from a sample. Of a stratum in which n objects answered
// and u are guessed, the total has the variance u(n+u)v/n, where v is the variance of a single time: a draw of n from
// n+u without return (W. G. Cochran, Sampling Techniques, 3rd edition, 2.6 and 5.4). Strata are independent. The range
// never begins below the measured part.
func (p *projection) around(cost time.Duration, pods []*podCost) *Range {
	var guessed [strata]int
	for _, pod := range pods {
		for group, n := range pod.guessed {
			guessed[group] += n
		}
	}
	squares, most := 0.0, 0.0
	for group, u := range guessed {
		a := p.typical[group]
		if u > 0 && (a.n == 0 || math.IsNaN(a.variance)) {
			return nil
		}
		if u > 0 {
			squares += float64(u) * float64(a.n+u) / float64(a.n) * a.variance
			most += float64(u) * a.mean.Seconds()
		}
	}
	margin := standardErrors * math.Sqrt(squares)
	return &Range{Low: cost.Seconds() - min(margin, most), High: cost.Seconds() + margin}
}
