package journal

import (
	"fmt"
	"math"
	"time"
)

// Episodes are flapping from this many on, if each returns after the median interval give or take this share of it.
const (
	flapsFrom   = 3
	flapsSpread = 0.4
	flapsApart  = time.Hour // farther apart, returning is chance, or a daily job that the times show by themselves
)

// flaps numbers incidents that return at a regular interval, and words what that says.
func flaps(episodes []Episode) []string {
	var notes []string
	for i := 0; i < len(episodes); {
		j := i + 1
		for j < len(episodes) && sameSeries(episodes[i:j], &episodes[j]) {
			j++
		}
		if n := j - i; n >= flapsFrom && episodes[i].Kind == Incident {
			for k := i; k < j; k++ {
				episodes[k].Flaps = k - i + 1
			}
			every := episodes[j-1].Start.Sub(*episodes[i].Start) / time.Duration(n-1)
			notes = append(notes, fmt.Sprintf("flapping: %d episodes, one every ~%s; for a person this is one incident", n, about(every)))
			i = j
			continue
		}
		i++
	}
	return notes
}

// sameSeries reports whether an episode goes on with a series at about its interval.
func sameSeries(series []Episode, next *Episode) bool {
	last := &series[len(series)-1]
	if last.Kind != Incident || next.Kind != Incident || last.Start == nil || next.Start == nil || last.Host != next.Host {
		return false
	}
	d := next.Start.Sub(*last.Start)
	if d <= 0 || d > flapsApart {
		return false
	}
	if len(series) == 1 {
		return true
	}
	mean := last.Start.Sub(*series[0].Start) / time.Duration(len(series)-1)
	return math.Abs(float64(d-mean)) <= flapsSpread*float64(max(d, mean))
}

// about rounds a duration as a person would say it.
func about(d time.Duration) string {
	switch {
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	case d >= 90*time.Second:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
