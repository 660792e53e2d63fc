package plegbench

import (
	"math"
	"slices"
	"sort"
	"time"
)

// quantile returns the q-quantile of sorted, which must not be empty, by nearest rank: the smallest value that at least
// q of all values do not exceed. It is always a value that was measured; with few samples p99 is the maximum.
func quantile(sorted []time.Duration, q float64) time.Duration {
	// The product may come out a hair above the whole number that it stands for, as 0.07*100 does.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// A distribution is the times of answered calls, sorted.
type distribution []time.Duration

func newDistribution(times []time.Duration) distribution {
	slices.Sort(times)
	return times
}

// seconds returns a quantile in seconds, or nil when nothing was answered.
func (d distribution) seconds(q float64) *float64 {
	if len(d) == 0 {
		return nil
	}
	return new(quantile(d, q).Seconds())
}

// histogram sorts the times into buckets with bounds 1 ms, 2 ms, 5 ms, 10 ms and so on, as far as there are any.
// Buckets at either end that would be empty are left out. The last bucket, always there, counts unanswered calls.
// It is nil when there is nothing to count.
func (d distribution) histogram(unanswered int) []Bucket {
	if len(d) == 0 && unanswered == 0 {
		return nil
	}
	var buckets []Bucket
	rest := d
	for step := 0; len(rest) > 0; step++ {
		bound := histogramBound(step)
		n := sort.Search(len(rest), func(i int) bool { return rest[i] > bound })
		if n > 0 || len(buckets) > 0 {
			buckets = append(buckets, Bucket{LeSeconds: new(bound.Seconds()), Count: n})
		}
		rest = rest[n:]
	}
	return append(buckets, Bucket{Count: unanswered})
}

// histogramBound returns the upper bound of a step: three steps to each power of ten, from a millisecond.
func histogramBound(step int) time.Duration {
	bound := [...]time.Duration{1, 2, 5}[step%3] * time.Millisecond
	for range step / 3 {
		if bound > math.MaxInt64/10 { // a bundle may hold any time
			return math.MaxInt64
		}
		bound *= 10
	}
	return bound
}
