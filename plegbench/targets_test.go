package plegbench

import (
	"strings"
	"testing"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
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
		{
			"whole lists need no hints", sandboxes, containers, hints,
			"new-ready* ready* running* x3* x2a* unknown created new-dead old-dead x2b x1",
		},
		{"only hints", nil, nil, hints, "h-sandbox h-container x1"},
		{
			"a part of the containers", sandboxes, &part, hints,
			"new-ready* ready* running* x3* x2a* h-container unknown created new-dead old-dead x2b x1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, target := range targets(tt.sandboxes, tt.containers, tt.hints, 2) {
				i := target.inspection()
				if (i.State == StateHinted) != (target.hint != nil) || i.Kind == "" {
					t.Errorf("%+v", i)
				}
				id := i.ID
				if target.turn == must {
					id += "*"
				}
				got = append(got, id)
			}
			testkit.Equal(t, "targets", tt.want, strings.Join(got, " "))
		})
	}
}

func TestChangedPods(t *testing.T) {
	pod := func(name string, sandbox crictl.SandboxState, container crictl.ContainerState) listPair {
		return listPair{
			sandboxes:  sandboxList(sandboxOf("s-"+name, name, sandbox, 1)),
			containers: containerList(containerOf("c-"+name, name, "app", container, 1)),
		}
	}
	both := func(a, b listPair) listPair {
		a.sandboxes = sandboxList(append(a.sandboxes.Sandboxes, b.sandboxes.Sandboxes...)...)
		a.containers = containerList(append(a.containers.Containers, b.containers.Containers...)...)
		return a
	}
	a := pod("a", crictl.SandboxReady, crictl.ContainerRunning)
	b := pod("b", crictl.SandboxReady, crictl.ContainerCreated)
	for _, tt := range []struct {
		name  string
		after listPair
		want  []string
	}{
		{"order", both(b, a), nil},
		{
			"one went, another came",
			both(a, pod("c", crictl.SandboxReady, crictl.ContainerRunning)),
			[]string{"uid-b", "uid-c"},
		},
	} {
		testkit.Equal(t, tt.name, tt.want, changedPods(both(a, b), tt.after))
	}
}
