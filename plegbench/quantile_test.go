package plegbench

import (
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
