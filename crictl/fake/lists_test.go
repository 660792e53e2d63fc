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
	const created, running, exited = runtimeapi.ContainerState_CONTAINER_CREATED,
		runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for _, test := range []struct {
		filter *runtimeapi.ContainerFilter
		want   string // names and attempts
	}{
		{nil, "app0 app1 app2 proxy0 run0 "},
		{&runtimeapi.ContainerFilter{State: state(created)}, "proxy0 "}, // which is zero
		{&runtimeapi.ContainerFilter{State: state(exited)}, "app0 app1 run0 "},
		{&runtimeapi.ContainerFilter{State: state(running)}, "app2 "},
		{&runtimeapi.ContainerFilter{Id: all[1].GetId()[:12]}, "app1 "},
		{&runtimeapi.ContainerFilter{Id: "feedfacefeedface"}, ""},
		{&runtimeapi.ContainerFilter{PodSandboxId: job}, "run0 "},
		{&runtimeapi.ContainerFilter{Id: all[0].GetId(), PodSandboxId: job}, ""},
		{&runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelContainerName: "app"}}, "app0 app1 app2 "},
		{&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"missing": ""}}, ""},
		{&runtimeapi.ContainerFilter{
			PodSandboxId: shop, State: state(exited), LabelSelector: map[string]string{labelPodName: "shop"},
		}, "app0 app1 "},
	} {
		got := ""
		for _, c := range c.containers(t, test.filter) {
			got += fmt.Sprint(c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), " ")
		}
		if got != test.want {
			t.Errorf("%v: %q, want %q", test.filter, got, test.want)
		}
	}
}

func TestRecords(t *testing.T) {
	c := serve(t, small())
	want := []Record{{
		ID: c.idOf(t, "app"), Name: "app", Namespace: "web", Pod: "shop",
		PodUID: c.sandboxes(t, nil)[0].GetMetadata().GetUid(),
	}}
	if diff := cmp.Diff(want, c.server.Records()); diff != "" {
		t.Errorf("running containers (-want +got):\n%s", diff)
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
