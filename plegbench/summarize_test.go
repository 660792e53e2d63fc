package plegbench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
)

// smallMeasurement is a node whose every figure can be worked out by hand.
func smallMeasurement() *Measurement {
	sandboxes := sandboxList(
		sandboxOf("s-a", "a", crictl.SandboxReady, 10),
		sandboxOf("s-b", "b", crictl.SandboxReady, 20),
		sandboxOf("s-b0", "b", crictl.SandboxNotReady, 5),
	)
	containers := containerList(
		containerOf("a1", "a", "app", crictl.ContainerRunning, 11),
		containerOf("a0", "a", "app", crictl.ContainerExited, 9), // the only dead one of its name: kept
		containerOf("b3", "b", "app", crictl.ContainerExited, 23),
		containerOf("b2", "b", "app", crictl.ContainerExited, 22), // beyond the newest
		containerOf("b1", "b", "app", crictl.ContainerExited, 21), // beyond the newest
		containerOf("bi", "b", "init", crictl.ContainerExited, 20),
		containerOf("bc", "b", "side", crictl.ContainerCreated, 24),
		containerOf("bu", "b", "odd", crictl.ContainerUnknown, 24),
	)
	m := &Measurement{
		Probes: []crictl.Call{
			call("Version", time.Millisecond, crictl.OK),
			call("Status", 5*time.Second, crictl.DeadlineExceeded),
			call("ListPodSandbox", 10*time.Millisecond, crictl.OK),
			call("ListContainers", 20*time.Millisecond, crictl.OK),
			call("ListImages", time.Millisecond, crictl.Unavailable),
			call("ImageFsInfo", time.Millisecond, crictl.Canceled),
		},
		Liveness: []crictl.Call{call("Version", 3*time.Millisecond, crictl.OK)},
		Samples: []Sample{
			sampleOf(0, 10*time.Millisecond, 20*time.Millisecond),
			sampleOf(time.Second, 10*time.Millisecond, 30*time.Millisecond),
			{At: t0.Add(2 * time.Second), Sandboxes: call("ListPodSandbox", 5*time.Second, crictl.DeadlineExceeded)},
			{At: t0.Add(3 * time.Second), Sandboxes: call("ListPodSandbox", 5*time.Second, crictl.Canceled)},
		},
		Sandboxes:   sandboxes,
		Containers:  containers,
		ChangedPods: []string{"uid-a"},
	}
	elapsed := map[string]time.Duration{"s-a": 2, "s-b": 4, "a1": 10, "a0": 20, "b3": 30}
	code := map[string]crictl.Code{
		"bi": crictl.DeadlineExceeded, "a0": crictl.NotFound, "bu": crictl.Unknown,
		"bc": crictl.Canceled,
	}
	for _, t := range targets(sandboxes, containers, nil, 50) {
		i := t.inspection()
		if elapsed[i.ID] == 0 && code[i.ID] == "" {
			continue
		}
		method := map[string]string{KindContainer: "ContainerStatus", KindPodSandbox: "PodSandboxStatus"}[i.Kind]
		i.Call = call(method, elapsed[i.ID]*time.Millisecond, cmp.Or(code[i.ID], crictl.OK))
		i.Call.Object = i.ID
		m.Sweep.Inspections = append(m.Sweep.Inspections, i)
	}
	m.Sweep.Total, m.Sweep.Reach = 11, "8 of 11: as an example"
	return m
}

func TestSummarize(t *testing.T) {
	got := Summarize(smallMeasurement(), nil)
	want := &Summary{
		ThresholdSeconds: 180,
		List: &ListSummary{
			Samples: 4, Errors: 1,
			P50Seconds: new(0.03), P90Seconds: new(0.04), P99Seconds: new(0.04), MaxSeconds: new(0.04),
		},
		Sweep: &SweepSummary{
			Inspected: 7, Total: 11, Hung: 1, Failed: 1, Reach: "8 of 11: as an example",
			P50Seconds: new(0.01), P99Seconds: new(0.03), SlowestSeconds: new(0.03), SlowestID: "b3",
			Histogram: []Bucket{
				{new(0.002), 1}, {new(0.005), 1}, {new(0.01), 1}, {new(0.02), 1}, {new(0.05), 1}, {nil, 1},
			},
		},
		// Lists: the median of 30 ms, 40 ms and one that hung. Pod a: 2+10+20 ms. Pod b, which is bad: its sandboxes
		// 4 ms and the mean of 3 ms, then bc, which was cut short and costs the mean of 20 ms, and bu, at which it
		// ends.
		ProjectedSeconds:      new(0.040 + 0.032 + 0.027),
		ChurnSeconds:          new(0.040 + 0.032 + 0.027),
		ColdSeconds:           new(0.040 + 0.032 + 0.027),
		ProjectedAgeSeconds:   new(0.040 + 0.032 + 0.027 + 1 + 0.040),
		OlderProjectedSeconds: new(0.040 + 0.072 + 2*0.067),
		RequestTimeoutSeconds: 120,
		ResponseRPC:           "ListContainers",
		ResponseBytes:         new(8000),
		ResponseLimitBytes:    16777216,
		BytesPerContainer:     new(1000.0),
		ContainersAtLimit:     new(16777),
		Sandboxes:             &SandboxCounts{Ready: 2, NotReady: 1},
		Containers:            &ContainerCounts{Created: 1, Running: 1, Exited: 5, Unknown: 1},
		ExitedBeyondNewest:    new(2),
	}
	testkit.Equal(t, "summary", want, got, withinMillionth)
}

func TestSummarizeKubelet(t *testing.T) {
	k := &crictl.Kubelet{EventedPLEG: true, RequestTimeout: 30 * time.Second}
	s := Summarize(smallMeasurement(), k)
	got := []float64{s.ThresholdSeconds, s.RequestTimeoutSeconds}
	testkit.Equal(t, "threshold and request timeout", []float64{600, 30}, got)
	testkit.Equal(t, "what the age adds", 300.04, *s.ProjectedAgeSeconds-*s.ProjectedSeconds, withinMillionth)
}

func TestSummarizeLeavesOutWhatIsNotKnown(t *testing.T) {
	got, err := json.Marshal(Summarize(&Measurement{Sandboxes: sandboxList(), Containers: containerList()}, nil))
	want := `{"thresholdSeconds":180,"requestTimeoutSeconds":120,"responseRPC":"ListContainers","responseBytes":0,` +
		`"responseLimitBytes":16777216,"sandboxes":{"ready":0,"notReady":0},` +
		`"containers":{"created":0,"running":0,"exited":0,"unknown":0},"exitedBeyondNewest":0}`
	testkit.Must(t, err)
	testkit.Equal(t, "summary", want, string(got))
	if Summarize(nil, nil) != nil || SummarizeRPCs(nil) != nil {
		t.Error("a summary of no measurement")
	}
}

func TestSummarizeResponse(t *testing.T) {
	refusal := Sample{
		Sandboxes:  call("ListPodSandbox", 0, crictl.OK),
		Containers: call("ListContainers", 0, crictl.ResourceExhausted),
	}
	refusal.Containers.Bytes = 20 << 20
	busy := refusal
	busy.Containers.Bytes = 0
	part := containerList(containerOf("a", "a", "app", crictl.ContainerRunning, 1))
	part.Complete = false
	manySandboxes := sandboxList()
	manySandboxes.Bytes = 5000
	for _, tt := range []struct {
		name string
		m    Measurement
		want string
	}{
		{"refused and not known otherwise", Measurement{Samples: []Sample{refusal}}, "ListContainers 20971520"},
		{
			"a part, and no size was stated",
			Measurement{Samples: []Sample{busy}, Containers: part},
			"ListContainers 1000 or more, 1000 each",
		},
		{"exhausted otherwise", Measurement{Samples: []Sample{busy}}, ""},
		{
			"sandboxes are larger",
			Measurement{Sandboxes: manySandboxes, Containers: containerList()},
			"ListPodSandbox 5000, counted",
		},
	} {
		s, got := Summarize(&tt.m, nil), ""
		if s.ResponseBytes != nil {
			got = fmt.Sprintf("%s %d", s.ResponseRPC, *s.ResponseBytes)
		}
		if s.ResponseTruncated {
			got += " or more"
		}
		if s.BytesPerContainer != nil {
			got += fmt.Sprintf(", %g each", *s.BytesPerContainer)
		}
		if s.Containers != nil || s.ExitedBeyondNewest != nil { // not of a part
			got += ", counted"
		}
		testkit.Equal(t, tt.name, tt.want, got)
	}
}

func TestSummarizeRPCs(t *testing.T) {
	want := []string{
		"Version 2 0 0.001 0.003", "Status 1 1 -1 -1", "ListPodSandbox 4 1 0.01 0.01", "ListContainers 2 0 0.02 0.03",
		"PodSandboxStatus 2 0 0.002 0.004", "ContainerStatus 6 2 0.02 0.03", "ListImages 1 1 -1 -1",
		"ImageFsInfo 1 0 -1 -1", "Zoo 1 0 0 0",
	}
	m := smallMeasurement()
	m.Probes = append(m.Probes, call("Zoo", 0, crictl.OK))
	var got []string
	for _, r := range SummarizeRPCs(m) {
		got = append(got, fmt.Sprint(r.Name, " ", r.Count, r.Errors, orAbsent(r.P50Seconds), orAbsent(r.MaxSeconds)))
	}
	testkit.Equal(t, "RPCs", want, got)
}

// t0 is when the measurements of the pure tests begin.
var t0 = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func call(method string, elapsed time.Duration, code crictl.Code) crictl.Call {
	return crictl.Call{Method: method, Start: t0, Elapsed: elapsed, Code: code}
}

func sampleOf(at, sandboxes, containers time.Duration) Sample {
	return Sample{
		At:         t0.Add(at),
		Mode:       crictl.ModeUnary,
		Sandboxes:  call("ListPodSandbox", sandboxes, crictl.OK),
		Containers: call("ListContainers", containers, crictl.OK),
	}
}

func podNamed(name string) *crictl.Pod {
	return &crictl.Pod{Namespace: "default", Name: name, UID: "uid-" + name}
}

func sandboxOf(id, pod string, state crictl.SandboxState, created int64) crictl.PodSandbox {
	return crictl.PodSandbox{ID: id, Pod: podNamed(pod), State: state, CreatedAt: created, Size: 500}
}

func containerOf(id, pod, name string, state crictl.ContainerState, created int64) crictl.Container {
	return crictl.Container{
		ID: id, SandboxID: "s-" + pod, Name: name, Pod: podNamed(pod), State: state, CreatedAt: created, Size: 1000,
	}
}

func sandboxList(sandboxes ...crictl.PodSandbox) *crictl.PodSandboxList {
	l := &crictl.PodSandboxList{Sandboxes: sandboxes, Mode: crictl.ModeUnary, Complete: true}
	for _, s := range sandboxes {
		l.Bytes += int(s.Size)
	}
	return l
}

func containerList(containers ...crictl.Container) *crictl.ContainerList {
	l := &crictl.ContainerList{Containers: containers, Mode: crictl.ModeUnary, Complete: true}
	for _, c := range containers {
		l.Bytes += int(c.Size)
	}
	return l
}

// FuzzSummarize summarizes what a bundle may hold: nothing in it is certain.
func FuzzSummarize(f *testing.F) {
	whole, _ := json.Marshal(smallMeasurement())
	for _, s := range []string{
		string(whole),
		`{"Sandboxes": {"Sandboxes": [{"ID": "a"}], "Complete": true}, "Containers": {"Containers": [{"ID": "b"}],
			"Complete": true}, "Samples": [{"Sandboxes": {"Method": "x", "Code": "OK"},
			"Containers": {"Method": "x", "Code": "OK"}}]}`,
		`{"Sweep": {"Inspections": [{"Call": {"Method": "x", "Code": "OK", "Elapsed": 9223372036854775807}}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m *Measurement
		if json.Unmarshal(data, &m) != nil || m == nil {
			return
		}
		Summarize(m, nil)
		SummarizeRPCs(m)
	})
}
