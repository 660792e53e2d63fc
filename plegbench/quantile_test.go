package plegbench

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"
)

// The definition, word for word: the smallest value that at least q of all values do not exceed.
func TestQuantileIsNearestRank(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 2000 {
		values := make([]time.Duration, 1+rng.Intn(40))
		for i := range values {
			values[i] = time.Duration(rng.Intn(30))
		}
		slices.Sort(values)
		percent := rng.Intn(101)
		var want time.Duration
		for _, v := range values {
			atMost := 0
			for _, w := range values {
				if w <= v {
					atMost++
				}
			}
			if atMost*100 >= percent*len(values) {
				want = v
				break
			}
		}
		if got := quantile(values, float64(percent)/100); got != want {
			t.Fatalf("p%d of %v: %v, want %v", percent, values, got, want)
		}
	}
}

func TestHistogram(t *testing.T) {
	for _, tt := range []struct {
		times      []time.Duration
		unanswered int
		want       string
	}{
		{nil, 3, " none:3"},
		{[]time.Duration{0, ms}, 0, " 0.001:2 none:0"},
		{[]time.Duration{3 * ms, 40 * ms}, 1, " 0.005:1 0.01:0 0.02:0 0.05:1 none:1"}, // empty ones between stay
		{[]time.Duration{7 * time.Second, 15 * time.Second}, 0, " 10:1 20:1 none:0"},  // longer than any deadline
	} {
		got := ""
		for _, b := range newDistribution(tt.times).histogram(tt.unanswered) {
			bound := "none"
			if b.LeSeconds != nil {
				bound = fmt.Sprint(*b.LeSeconds)
			}
			got += fmt.Sprintf(" %s:%d", bound, b.Count)
		}
		if got != tt.want {
			t.Errorf("%v, %d unanswered: %q, want %q", tt.times, tt.unanswered, got, tt.want)
		}
	}
}
