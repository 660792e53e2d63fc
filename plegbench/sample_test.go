package plegbench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// sampledNode is a node of so many pods, of which n objects chosen at random have been asked. One container in ten is
// twenty times as slow as the others, and those of a pod are alike.
func sampledNode(rng *rand.Rand, pods, n int) (m *Measurement, cold time.Duration) {
	var sandboxes []crictl.PodSandbox
	var containers []crictl.Container
	took := map[string]time.Duration{}
	for p := range pods {
		pod := fmt.Sprint(p)
		sandboxes = append(sandboxes, sandboxOf("s"+pod, pod, crictl.SandboxReady, int64(p)))
		took["s"+pod] = time.Duration(50+rng.IntN(50)) * ms
		slow := time.Duration(1)
		if rng.IntN(10) == 0 {
			slow = 20
		}
		for c := range 1 + rng.IntN(4) {
			id := fmt.Sprint("c", pod, "-", c)
			containers = append(containers, containerOf(id, pod, "app", crictl.ContainerRunning, int64(p)))
			took[id] = slow * time.Duration(20+rng.IntN(30)) * ms
		}
	}
	m = &Measurement{
		Samples: []Sample{sampleOf(0, ms, ms)}, Sandboxes: sandboxList(sandboxes...),
		Containers: containerList(containers...),
	}
	ts := targets(m.Sandboxes, m.Containers, nil, 0)
	for _, i := range order(ts, rng.Shuffle)[:min(n, len(ts))] {
		_, id := ts[i].age()
		m.Sweep.Inspections = append(m.Sweep.Inspections, inspected(ts[i], took[id], crictl.OK))
	}
	cold = 2 * ms
	for _, d := range took {
		cold += d
	}
	return m, cold
}

// TestColdRange draws many samples, and counts how often the range of a cold relist contains its true length.
func TestColdRange(t *testing.T) {
	for n, draws := range map[int]uint64{60: 200, 600: 100} {
		hits := uint64(0)
		for seed := range draws {
			m, cold := sampledNode(rand.New(rand.NewPCG(seed, 7)), 300, n)
			s := Summarize(m, nil)
			r := s.ColdRange
			if r == nil || r.Low > *s.ColdSeconds || r.High < *s.ColdSeconds || r.Low < 0 {
				t.Fatalf("%d asked, seed %d: range %v around %v", n, seed, r, *s.ColdSeconds)
			}
			if r.Low <= cold.Seconds() && cold.Seconds() <= r.High {
				hits++
			}
		}
		if hits < draws*93/100 { // few draws of times that differ twentyfold
			t.Errorf("of %d asked the range is true in %d of %d draws", n, hits, draws)
		}
	}
	m, cold := sampledNode(rand.New(rand.NewPCG(1, 7)), 40, math.MaxInt)
	if r := Summarize(m, nil).ColdRange; r == nil || math.Abs(r.Low-cold.Seconds()) > 1e-6 || r.High != r.Low {
		t.Errorf("where all are asked the range is %v, want %v", r, cold)
	}
	m, _ = sampledNode(rand.New(rand.NewPCG(1, 7)), 40, 5)
	if s := Summarize(m, nil); s.ColdRange != nil || s.ProjectedRange == nil || s.ProjectedRange.Low != 0.002 {
		t.Errorf("of five answers the range is %v, and now %v", s.ColdRange, s.ProjectedRange)
	}
	m.ChangedPods = []string{"uid-1", "uid-2"}
	m.Sweep.Inspections = nil
	if s := Summarize(m, nil); s.ProjectedRange != nil {
		t.Errorf("without an answer the range is %v", s.ProjectedRange)
	}
}
