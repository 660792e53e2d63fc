package fake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContainerFilters(t *testing.T) {
	c := serve(t, small())
	all := c.containers(t, nil)
	shop, job := c.sandboxes(t, nil)[0].GetId(), c.sandboxes(t, nil)[2].GetId()
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	tests := []struct {
		name   string
		filter *runtimeapi.ContainerFilter
		want   string // names and attempts
	}{
		{"none", nil, "app0 app1 app2 proxy0 run0"},
		{"running", &runtimeapi.ContainerFilter{State: state(runtimeapi.ContainerState_CONTAINER_RUNNING)}, "app2"},
		{
			"created, which is zero", &runtimeapi.ContainerFilter{State: state(runtimeapi.ContainerState_CONTAINER_CREATED)},
			"proxy0",
		},
		{
			"exited",
			&runtimeapi.ContainerFilter{State: state(runtimeapi.ContainerState_CONTAINER_EXITED)},
			"app0 app1 run0",
		},
		{"short id", &runtimeapi.ContainerFilter{Id: all[1].GetId()[:12]}, "app1"},
		{"unknown id", &runtimeapi.ContainerFilter{Id: "feedfacefeedface"}, ""},
		{"sandbox", &runtimeapi.ContainerFilter{PodSandboxId: job}, "run0"},
		{"id in another sandbox", &runtimeapi.ContainerFilter{Id: all[0].GetId(), PodSandboxId: job}, ""},
		{
			"label",
			&runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelContainerName: "app"}},
			"app0 app1 app2",
		},
		{
			"label, missing key with empty value", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"nope": ""}},
			"",
		},
		{"all at once", &runtimeapi.ContainerFilter{
			PodSandboxId: shop, State: state(runtimeapi.ContainerState_CONTAINER_EXITED), LabelSelector: map[string]string{labelPodName: "shop"},
		}, "app0 app1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, c := range c.containers(t, test.filter) {
				got = append(got, c.GetMetadata().GetName()+string(rune('0'+c.GetMetadata().GetAttempt())))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSandboxFilters(t *testing.T) {
	c := serve(t, small())
	all := c.sandboxes(t, nil)
	state := func(s runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
		return &runtimeapi.PodSandboxStateValue{State: s}
	}
	for want, filter := range map[string]*runtimeapi.PodSandboxFilter{
		"shop0 job0 job1 ": nil,
		"shop0 ":           {State: state(runtimeapi.PodSandboxState_SANDBOX_READY)}, // which is zero
		"job0 job1 ":       {State: state(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)},
		"job1 ":            {Id: all[2].GetId()[:9]},
		"":                 {LabelSelector: map[string]string{"tier": "back"}},
	} {
		got := ""
		for _, sb := range c.sandboxes(t, filter) {
			got += fmt.Sprint(sb.GetMetadata().GetName(), sb.GetMetadata().GetAttempt(), " ")
		}
		if got != want {
			t.Errorf("%v: %q, want %q", filter, got, want)
		}
	}
}

// TestSendLimit: at the limit the list passes, one byte more and the server refuses.
func TestSendLimit(t *testing.T) {
	s := small()
	size := listSize(serve(t, s).server)
	s.Limits.Send = size
	serve(t, s).containers(t, nil)
	s.Limits.Send = size - 1
	_, err := serve(t, s).ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if codeOf(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "trying to send message larger than max (") {
		t.Errorf("one byte over the limit: %v", err)
	}
}
