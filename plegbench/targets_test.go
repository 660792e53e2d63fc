package plegbench

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

func TestTargets(t *testing.T) {
	sandboxes := sandboxList(
		sandboxOf("old-dead", "a", crictl.SandboxNotReady, 1),
		sandboxOf("ready", "a", crictl.SandboxReady, 2),
		sandboxOf("new-dead", "b", crictl.SandboxNotReady, 9),
		sandboxOf("new-ready", "b", crictl.SandboxReady, 8),
	)
	containers := containerList(
		containerOf("x1", "a", "app", crictl.ContainerExited, 1),
		containerOf("created", "a", "app", crictl.ContainerCreated, 5),
		containerOf("x3", "a", "app", crictl.ContainerExited, 3),
		containerOf("running", "a", "app", crictl.ContainerRunning, 4),
		containerOf("x2b", "a", "app", crictl.ContainerExited, 2),
		containerOf("x2a", "a", "app", crictl.ContainerExited, 2),
		containerOf("unknown", "a", "app", crictl.ContainerUnknown, 6),
	)
	hints := []Hint{
		{Kind: KindContainer, ID: "h-container"},
		{Kind: KindPodSandbox, ID: "h-sandbox"},
		{Kind: KindContainer, ID: "x1"},
		{Kind: KindContainer, ID: "h-container"},
		{Kind: KindContainer},
		{Kind: "Image", ID: "h-image"},
	}
	part := *containers
	part.Complete = false
	tests := []struct {
		name       string
		sandboxes  *crictl.PodSandboxList
		containers *crictl.ContainerList
		hints      []Hint
		want       string // musts have a star
	}{
		{"nothing", nil, nil, nil, ""},
		{
			"whole lists need no hints", sandboxes, containers, hints,
			"new-ready* ready* running* x3* x2a* unknown created new-dead old-dead x2b x1",
		},
		{"only hints", nil, nil, hints, "h-sandbox h-container x1"},
		{"containers hang", sandboxes, nil, hints, "new-ready* ready* h-container x1 new-dead old-dead"},
		{
			"a part of the containers", sandboxes, &part, hints,
			"new-ready* ready* running* x3* x2a* h-container unknown created new-dead old-dead x2b x1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, target := range targets(tt.sandboxes, tt.containers, tt.hints, 2) {
				id := target.inspection().ID
				if target.must {
					id += "*"
				}
				got = append(got, id)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestChangedPods(t *testing.T) {
	base := func() snapshot {
		return snapshot{
			sandboxes: sandboxList(sandboxOf("s-a", "a", crictl.SandboxReady, 1), sandboxOf("s-b", "b", crictl.SandboxReady, 1)),
			containers: containerList(
				containerOf("c-a", "a", "app", crictl.ContainerRunning, 1),
				containerOf("c-b", "b", "app", crictl.ContainerCreated, 1),
			),
		}
	}
	tests := []struct {
		name   string
		change func(*snapshot)
		want   []string
	}{
		{"nothing", func(*snapshot) {}, nil},
		{"order", func(c *snapshot) {
			c.containers.Containers[0], c.containers.Containers[1] = c.containers.Containers[1], c.containers.Containers[0]
		}, nil},
		{"exited", func(c *snapshot) { c.containers.Containers[0].State = crictl.ContainerExited }, []string{"uid-a"}},
		{
			"created and unknown are one to the PLEG",
			func(c *snapshot) { c.containers.Containers[1].State = crictl.ContainerUnknown }, nil,
		},
		{"sandbox died", func(c *snapshot) { c.sandboxes.Sandboxes[1].State = crictl.SandboxNotReady }, []string{"uid-b"}},
		{"went", func(c *snapshot) { c.containers.Containers = c.containers.Containers[1:] }, []string{"uid-a"}},
		{"came", func(c *snapshot) {
			c.sandboxes.Sandboxes = append(c.sandboxes.Sandboxes, sandboxOf("s-c", "c", crictl.SandboxReady, 1))
			c.containers.Containers = append(c.containers.Containers, containerOf("c-2", "b", "app", crictl.ContainerRunning, 1))
		}, []string{"uid-b", "uid-c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after := base()
			tt.change(&after)
			if diff := cmp.Diff(tt.want, changedPods(base(), after)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A series compares over a second or two, however long it is.
func TestSeriesWindow(t *testing.T) {
	tests := []struct {
		every time.Duration
		n     int
		want  time.Duration
	}{
		{50 * time.Millisecond, 1, 0},
		{50 * time.Millisecond, 5, 200 * time.Millisecond},
		{time.Second, 2, time.Second},
		{time.Second, 60, time.Second},
		{600 * time.Millisecond, 7, 1200 * time.Millisecond},
		{50 * time.Millisecond, 200, 1950 * time.Millisecond},
		{time.Minute, 3, time.Minute},
	}
	for _, tt := range tests {
		var s series
		for i := range tt.n {
			s.add(snapshot{at: t0.Add(time.Duration(i) * tt.every), sandboxes: sandboxList(), containers: containerList()})
		}
		if got := s.last.at.Sub(s.anchor.at); got != tt.want {
			t.Errorf("%d samples, one every %v: compares over %v, want %v", tt.n, tt.every, got, tt.want)
		}
	}
	if got := (&series{}).changed(); got != nil {
		t.Errorf("no sample, but %v changed", got)
	}
}
