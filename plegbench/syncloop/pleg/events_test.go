package pleg

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func TestComputeEvents(t *testing.T) {
	started, died := Event{"p", ContainerStarted, "c"}, Event{"p", ContainerDied, "c"}
	removed, changed := Event{"p", ContainerRemoved, "c"}, Event{"p", ContainerChanged, "c"}
	tests := []struct {
		from, to state
		want     []Event
	}{
		{running, running, nil},
		{running, exited, []Event{died}},
		{running, unknown, []Event{changed}},
		{running, nonExistent, []Event{died, removed}},
		{exited, running, []Event{started}},
		{exited, exited, nil},
		{exited, unknown, []Event{changed}},
		{exited, nonExistent, []Event{removed}},
		{unknown, running, []Event{started}},
		{unknown, exited, []Event{died}},
		{unknown, unknown, nil},
		{unknown, nonExistent, []Event{died, removed}},
		{nonExistent, running, []Event{started}},
		{nonExistent, exited, []Event{died}}, // began and ended between two relists
		{nonExistent, unknown, []Event{changed}},
		{nonExistent, nonExistent, nil},
	}
	for _, tt := range tests {
		t.Run(string(tt.from)+" to "+string(tt.to), func(t *testing.T) {
			if diff := cmp.Diff(tt.want, computeEvents("p", "c", tt.from, tt.to)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKeptIPs(t *testing.T) {
	sandbox := func(s runtimeapi.PodSandboxState) []*runtimeapi.PodSandboxStatus {
		return []*runtimeapi.PodSandboxStatus{{State: s}}
	}
	before := &container.PodStatus{IPs: []string{"10.0.0.1"}}
	tests := map[string]struct {
		status, before *container.PodStatus
		want           []string
	}{
		"has its own":       {&container.PodStatus{IPs: []string{"10.0.0.2"}}, before, []string{"10.0.0.2"}},
		"torn down":         {&container.PodStatus{SandboxStatuses: sandbox(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)}, before, []string{"10.0.0.1"}},
		"ready without":     {&container.PodStatus{SandboxStatuses: sandbox(runtimeapi.PodSandboxState_SANDBOX_READY)}, before, nil},
		"nothing known":     {&container.PodStatus{}, nil, nil},
		"no sandbox at all": {&container.PodStatus{}, before, []string{"10.0.0.1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, keptIPs(tt.status, tt.before)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
