package plegbench

import (
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// Summarize does the arithmetic over a measurement for the given kubelet, or for one with default settings when k is
// nil. It is pure, and nil for a nil measurement.
func Summarize(m *Measurement, k *crictl.Kubelet) *Summary {
	if m == nil {
		return nil
	}
	s := &Summary{
		ThresholdSeconds:      RelistThreshold.Seconds(),
		RequestTimeoutSeconds: requestTimeout(k).Seconds(),
		ResponseLimitBytes:    crictl.DefaultMessageLimit,
		List:                  listSummary(m.Samples),
		Sweep:                 sweepSummary(&m.Sweep),
	}
	period := RelistPeriod
	if k != nil && k.EventedPLEG {
		s.ThresholdSeconds = EventedRelistThreshold.Seconds()
		period = EventedRelistPeriod
	}
	s.project(newProjection(m, requestTimeout(k)), period)
	s.size(m)
	s.count(m)
	return s
}

// requestTimeout is the kubelet's deadline for one call.
func requestTimeout(k *crictl.Kubelet) time.Duration {
	if k != nil && k.RequestTimeout > 0 {
		return k.RequestTimeout
	}
	return RequestTimeout
}

func listSummary(samples []Sample) *ListSummary {
	if len(samples) == 0 {
		return nil
	}
	l := &ListSummary{Samples: len(samples)}
	var times []time.Duration
	for _, s := range samples {
		switch {
		case s.OK():
			times = append(times, s.Elapsed())
		case hungSample(s) || failed(s.Sandboxes) || failed(s.Containers):
			l.Errors++
		}
	}
	d := newDistribution(times)
	l.P50Seconds, l.P90Seconds, l.P99Seconds, l.MaxSeconds = d.seconds(0.50), d.seconds(0.90), d.seconds(0.99),
		d.seconds(1)
	return l
}

// maxID bounds an id in a summary, in bytes. Runtimes give 64 hexadecimal digits.
const maxID = 128

func sweepSummary(sweep *Sweep) *SweepSummary {
	if len(sweep.Inspections) == 0 {
		return nil
	}
	var all tally
	all.times = make([]time.Duration, 0, len(sweep.Inspections))
	var slowest crictl.Call
	cut := 0
	for i := range sweep.Inspections {
		c := sweep.Inspections[i].Call
		all.add(c)
		if c.Code == crictl.Canceled {
			cut++
		}
		if answered(c) && (slowest.Object == "" || c.Elapsed > slowest.Elapsed) {
			slowest = c
			slowest.Object = sweep.Inspections[i].ID
		}
	}
	d := newDistribution(all.times)
	return &SweepSummary{
		Inspected:      all.count - cut,
		Total:          sweep.Total,
		Hung:           all.hung,
		Failed:         all.failed,
		P50Seconds:     d.seconds(0.50),
		P99Seconds:     d.seconds(0.99),
		SlowestSeconds: d.seconds(1),
		SlowestID:      slowest.Object[:min(len(slowest.Object), maxID)],
		Reach:          sweep.Reach,
		Histogram:      d.histogram(all.hung),
	}
}

// project fills in the duration of a relist, as far as it can be known. period is the pause between two relists.
func (s *Summary) project(p *projection, period time.Duration) {
	now, ok := p.now()
	if !ok {
		return
	}
	s.ProjectedSeconds = new(now.Seconds())
	if !p.lists.answered {
		return // no relist gets as far as inspecting pods, and the age grows without end
	}
	s.ProjectedRange = p.around(now, p.touched())
	s.ProjectedAgeSeconds = new((now + period + p.lists.cost).Seconds())
	if !p.known() {
		return // without the time of a status call, pods would seem to cost nothing
	}
	s.OlderProjectedSeconds = new(p.older().Seconds())
	s.ChurnSeconds = new(p.churn().Seconds())
	s.ColdSeconds, s.ColdRange = new(p.cold().Seconds()), p.around(p.cold(), p.all())
}
