package plegbench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// sampledNode is a node of so many pods, of whose objects a share, in percent, has been asked. One container in ten is
// twenty times as slow as the others, and those of a pod are alike.
func sampledNode(rng *rand.Rand, pods, share int) (m *Measurement, cold time.Duration) {
	var text strings.Builder
	cold = 2 * ms
	add := func(kind string, took int) {
		if cold += time.Duration(took) * ms; rng.IntN(100) >= share {
			kind += "?"
		}
		fmt.Fprint(&text, kind, took)
	}
	for range pods {
		add(" s", 50+rng.IntN(50))
		slow := 1
		if rng.IntN(10) == 0 {
			slow = 20
		}
		for range 1 + rng.IntN(4) {
			add("+r", slow*(20+rng.IntN(30)))
		}
	}
	return nodeOf(text.String()), cold
}

// TestColdRange draws many samples, and counts how often the range of a cold relist contains its true length.
func TestColdRange(t *testing.T) {
	for share, draws := range map[int]uint64{6: 200, 60: 100} {
		hits := uint64(0)
		for seed := range draws {
			m, cold := sampledNode(rand.New(rand.NewPCG(seed, 7)), 300, share)
			s := Summarize(m, nil)
			r := s.ColdRange
			if r == nil || r.Low > *s.ColdSeconds || r.High < *s.ColdSeconds || r.Low < 0 {
				t.Fatalf("%d %% asked, seed %d: range %v around %v", share, seed, r, *s.ColdSeconds)
			}
			if r.Low <= cold.Seconds() && cold.Seconds() <= r.High {
				hits++
			}
		}
		if hits < draws*93/100 { // few draws of times that differ twentyfold
			t.Errorf("of %d %% asked the range is true in %d of %d draws", share, hits, draws)
		}
	}
	m, cold := sampledNode(rand.New(rand.NewPCG(1, 7)), 40, 100)
	if r := Summarize(m, nil).ColdRange; r == nil || math.Abs(r.Low-cold.Seconds()) > 1e-6 || r.High != r.Low {
		t.Errorf("where all are asked the range is %v, want %v", r, cold)
	}
	m, _ = sampledNode(rand.New(rand.NewPCG(1, 7)), 40, 4)
	if s := Summarize(m, nil); s.ColdRange != nil || s.ProjectedRange == nil || s.ProjectedRange.Low != 0.002 {
		t.Errorf("of few answers the range is %v, and now %v", s.ColdRange, s.ProjectedRange)
	}
	m.ChangedPods = []string{"uid-1", "uid-2"}
	m.Sweep.Inspections = nil
	if s := Summarize(m, nil); s.ProjectedRange != nil {
		t.Errorf("without an answer the range is %v", s.ProjectedRange)
	}
}
