package plegbench

import (
	"cmp"
	"math"
	"time"
)

// Thresholds that distinguish growth from noise.
const (
	forecastSpan   = 5 * time.Second
	forecastPoints = 5
	forecastFit    = 0.5 // the share of the variance that the line must explain
	forecastT      = 4.0 // the slope, in multiples of its own standard error
	forecastSteps  = 3   // how many more samples must show growth than shrinkage
)

// ForecastOf extends the growth over the samples to the message limit and to the threshold, as s has them. It is pure.
//
// Growth is the slope of least squares over the answered samples. It counts when there are at least five of them over
// at least five seconds, the line explains half of the variance, and the slope is four times its standard error. The
// size must also have moved in its direction at least three times more often than against it, so that one rollout in
// the middle is not taken for a leak.
//
// The age of the PLEG contains the lists twice, once in the relist itself and once in the next one's lists, so it grows
// twice as fast as they do. How the time for inspecting grows is not known, and is taken as constant.
func ForecastOf(samples []Sample, s *Summary) Forecast {
	var f Forecast
	if s == nil {
		return f
	}
	f.BytesPerContainer, f.ContainersAtLimit = s.BytesPerContainer, s.ContainersAtLimit
	sizes, times := forecastSeries(samples, s.ResponseRPC == "ListPodSandbox")
	if rate, ok := sizes.growth(); ok && sizes.steady(rate) {
		f.BytesPerSecond = new(rate)
		if rate > 0 {
			f.SecondsToLimit = new(max(0, float64(s.ResponseLimitBytes)-sizes.lastY()) / rate)
		}
	}
	age := times.lastY() // the lists alone, where the rest is not known
	if s.ProjectedAgeSeconds != nil {
		age = *s.ProjectedAgeSeconds
	}
	if rate, ok := times.growth(); ok && rate > 0 {
		f.SecondsToThreshold = new(max(0, s.ThresholdSeconds-age) / (2 * rate))
	}
	return f
}

// forecastSeries returns the sizes, in bytes, and the times, in seconds, of the answered samples.
func forecastSeries(samples []Sample, sandboxes bool) (sizes, times line) {
	for _, s := range samples {
		if !s.OK() {
			continue
		}
		list := s.Containers
		if sandboxes {
			list = s.Sandboxes
		}
		x := s.At.Sub(samples[0].At).Seconds()
		sizes.add(x, float64(list.Bytes))
		times.add(x, s.Elapsed().Seconds())
	}
	return sizes, times
}

// A line is a series of points to which a straight line is fitted. x is in seconds and ascends.
type line struct{ x, y []float64 }

func (l *line) add(x, y float64) {
	l.x, l.y = append(l.x, x), append(l.y, y)
}

func (l *line) lastY() float64 {
	if len(l.y) == 0 {
		return 0
	}
	return l.y[len(l.y)-1]
}

// growth returns the slope in units of y per second, and whether it is significant.
func (l *line) growth() (slope float64, ok bool) {
	n := len(l.x)
	if n < forecastPoints || l.x[n-1]-l.x[0] < forecastSpan.Seconds() {
		return 0, false
	}
	mx, my := mean(l.x), mean(l.y)
	var sxx, sxy, syy float64
	for i := range l.x {
		dx, dy := l.x[i]-mx, l.y[i]-my
		sxx += dx * dx
		sxy += dx * dy
		syy += dy * dy
	}
	if sxx == 0 || syy == 0 {
		return 0, false
	}
	slope = sxy / sxx
	residual := max(0, syy-slope*sxy)
	if 1-residual/syy < forecastFit {
		return 0, false
	}
	stderr := math.Sqrt(residual / float64(n-2) / sxx)
	return slope, math.Abs(slope) >= forecastT*stderr
}

// steady reports whether y moved in the direction of slope clearly more often than against it.
func (l *line) steady(slope float64) bool {
	net := 0
	for i := 1; i < len(l.y); i++ {
		net += cmp.Compare(l.y[i], l.y[i-1])
	}
	if slope < 0 {
		net = -net
	}
	return net >= forecastSteps
}

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
