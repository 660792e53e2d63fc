package plegbench

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
)

// nodeOf reads pods, a word each: their objects with a + between them, the oldest first. s is a sandbox that is ready,
// r a container that runs, and x one that has exited. After that stands how many milliseconds its status took; ! if it
// hung, ? if it was not asked about, > before the time until it was cut short, and - before the time until it failed.
func nodeOf(text string) *Measurement {
	var sandboxes []crictl.PodSandbox
	var containers []crictl.Container
	m := &Measurement{Samples: []Sample{sampleOf(0, ms, ms)}}
	for p, pod := range strings.Fields(text) {
		for i, object := range strings.Split(pod, "+") {
			in := Inspection{Kind: KindContainer, ID: fmt.Sprint(p, "-", i)}
			switch object[0] {
			case 's':
				in.Kind, in.State = KindPodSandbox, "ready"
				s := sandboxOf(in.ID, fmt.Sprint(p), crictl.SandboxReady, int64(9-i))
				s.Attempt = uint32(i)
				sandboxes = append(sandboxes, s)
			case 'r':
				in.State = "running"
				containers = append(containers, containerOf(in.ID, fmt.Sprint(p), "c", crictl.ContainerRunning, int64(i)))
			case 'x':
				in.State = "exited"
				containers = append(containers, containerOf(in.ID, fmt.Sprint(p), "c", crictl.ContainerExited, int64(i)))
			}
			codes := map[byte]crictl.Code{'!': crictl.DeadlineExceeded, '>': crictl.Canceled, '-': crictl.Unavailable}
			n, _ := strconv.Atoi(strings.Trim(object[1:], "!>-?"))
			in.Call = call("Status", time.Duration(n)*ms, cmp.Or(codes[object[1]], crictl.OK))
			if object[1] != '?' {
				m.Sweep.Inspections = append(m.Sweep.Inspections, in)
			}
		}
	}
	m.Sandboxes, m.Containers = sandboxList(sandboxes...), containerList(containers...)
	return m
}

// TestProjection has lists of two milliseconds.
func TestProjection(t *testing.T) {
	for _, tt := range []struct {
		name, pods              string
		now, cold, churn, older float64 // milliseconds; -1: not known
	}{
		{"the mean of others", "r10 r20 r30 r?", 2, 82, 82, 2},
		{"of others alike, if six are known", "x1 x1 x1 x1 x1 x1 r100 x?", 2, 109, 109, 2},
		{"of all, if five are known", "x1 x1 x1 x1 x1 r100 x?", 2, 124.5, 124.5, 2},
		{"no other", "s5 r?", 2, -1, -1, -1},
		{"cut short late", "r10 r10 r>50", 2, 72, 72, 2},
		{"cut short early", "r10 r10 r>5", 2, 32, 32, 2},
		{"a hang costs the deadline", "r10 r!", 120_002, 120_012, 120_012, 240_006},
		{"a failure ends a pod, the newest first", "r30+x-5+r10 r40", 17, 57, 57, 36},
		{"the newest attempt first", "s5+s-7+r10 s3", 9, 12, 12, 20},
		{"ten pods at least change at once", strings.Repeat("r10 ", 12), 2, 122, 102, 2},
		{"or a tenth", strings.Repeat("r10 ", 120), 2, 1202, 122, 2},
	} {
		s := Summarize(nodeOf(tt.pods), nil)
		var got []float64
		for _, seconds := range []*float64{s.ProjectedSeconds, s.ColdSeconds, s.ChurnSeconds, s.OlderProjectedSeconds} {
			got = append(got, max(-1, orAbsent(seconds)*1000))
		}
		testkit.Equal(t, tt.name, []float64{tt.now, tt.cold, tt.churn, tt.older}, got, withinMillionth)
	}
}

func TestProjectionOfLists(t *testing.T) {
	ok := sampleOf(0, 10*time.Millisecond, 30*time.Millisecond)
	slow := sampleOf(0, time.Second, time.Second)
	first, second := Sample{Sandboxes: call("ListPodSandbox", 5*time.Second, crictl.DeadlineExceeded)}, ok
	second.Containers = call("ListContainers", 5*time.Second, crictl.DeadlineExceeded)
	failed := ok
	failed.Containers.Code = crictl.ResourceExhausted
	canceled := ok
	canceled.Sandboxes.Code = crictl.Canceled
	stuck := ok
	stuck.Containers.Elapsed = 2 * time.Minute
	tests := []struct {
		name    string
		samples []Sample
		want    float64 // -1: absent
		age     float64
	}{
		{"none", nil, -1, -1},
		{"the median", []Sample{slow, ok, ok}, 0.04, 1.08},
		{"sandboxes hang: the containers are not asked for", []Sample{first}, 120, -1},
		{"containers hang", []Sample{second}, 120.01, -1},
		{"answered after the kubelet gave up", []Sample{stuck}, 120.01, -1},
		{"most hung", []Sample{ok, first, first}, 120, -1},
		{"failed", []Sample{failed, failed}, -1, -1},
		{"cut short is left out", []Sample{slow, canceled}, 2, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &Measurement{Samples: tt.samples, Sandboxes: sandboxList(), Containers: containerList()}
			s := Summarize(m, nil)
			got := []float64{orAbsent(s.ProjectedSeconds), orAbsent(s.ProjectedAgeSeconds)}
			testkit.Equal(t, "projected and age", []float64{tt.want, tt.age}, got, withinMillionth)
			testkit.Equal(t, "cold and churn are not known", tt.age < 0, s.ColdSeconds == nil && s.ChurnSeconds == nil)
		})
	}
}

func orAbsent(f *float64) float64 {
	if f == nil {
		return -1
	}
	return *f
}

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
