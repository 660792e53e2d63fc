package fake

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

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
		{"empty", &runtimeapi.ContainerFilter{}, "app0 app1 app2 proxy0 run0"},
		{"running", &runtimeapi.ContainerFilter{State: state(runtimeapi.ContainerState_CONTAINER_RUNNING)}, "app2"},
		{
			"created, which is zero", &runtimeapi.ContainerFilter{State: state(runtimeapi.ContainerState_CONTAINER_CREATED)},
			"proxy0",
		},
		{"exited", &runtimeapi.ContainerFilter{State: state(runtimeapi.ContainerState_CONTAINER_EXITED)}, "app0 app1 run0"},
		{"id", &runtimeapi.ContainerFilter{Id: all[1].GetId()}, "app1"},
		{"short id", &runtimeapi.ContainerFilter{Id: all[1].GetId()[:12]}, "app1"},
		{"unknown id", &runtimeapi.ContainerFilter{Id: "feedfacefeedface"}, ""},
		{"sandbox", &runtimeapi.ContainerFilter{PodSandboxId: job}, "run0"},
		{"short sandbox id", &runtimeapi.ContainerFilter{PodSandboxId: job[:10]}, "run0"},
		{"id in another sandbox", &runtimeapi.ContainerFilter{Id: all[0].GetId(), PodSandboxId: job}, ""},
		{"label", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelContainerName: "app"}}, "app0 app1 app2"},
		{"label, other value", &runtimeapi.ContainerFilter{LabelSelector: map[string]string{labelContainerName: "ap"}}, ""},
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
	tests := []struct {
		name   string
		filter *runtimeapi.PodSandboxFilter
		want   string
	}{
		{"none", nil, "shop0 job0 job1"},
		{
			"ready, which is zero", &runtimeapi.PodSandboxFilter{State: state(runtimeapi.PodSandboxState_SANDBOX_READY)},
			"shop0",
		},
		{"not ready", &runtimeapi.PodSandboxFilter{State: state(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)}, "job0 job1"},
		{"short id", &runtimeapi.PodSandboxFilter{Id: all[2].GetId()[:9]}, "job1"},
		{"unknown id", &runtimeapi.PodSandboxFilter{Id: "feedface"}, ""},
		{"label", &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "front"}}, "shop0"},
		{"id and state", &runtimeapi.PodSandboxFilter{
			Id:    all[0].GetId(),
			State: state(runtimeapi.PodSandboxState_SANDBOX_NOTREADY),
		}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, sb := range c.sandboxes(t, test.filter) {
				got = append(got, sb.GetMetadata().GetName()+string(rune('0'+sb.GetMetadata().GetAttempt())))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestShortIDs: an id that begins several objects' ids names none of them.
func TestShortIDs(t *testing.T) {
	c := serve(t, Scenario{Name: "many", Pods: []PodGroup{{
		Name: "p", Count: 40,
		Containers: []ContainerGroup{{Name: "c"}},
	}}})
	byFirst := map[string]int{}
	for _, container := range c.containers(t, nil) {
		byFirst[container.GetId()[:1]]++
	}
	for first, n := range byFirst {
		want := codes.InvalidArgument
		if n == 1 {
			want = codes.OK
		}
		_, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: first})
		if codeOf(err) != want {
			t.Errorf("%q begins %d ids: %v, want %s", first, n, err, want)
		}
	}
	if _, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{}); codeOf(err) != codes.NotFound {
		t.Errorf("the empty id: %v", err)
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

func TestStreamContainers(t *testing.T) {
	s := Scenario{Name: "many", Streaming: true, Pods: []PodGroup{
		{Name: "p", Age: Duration(time.Hour), Containers: []ContainerGroup{{Name: "c", Exited: 2*streamBatch + 1}}},
	}}
	c := serve(t, s)
	stream := must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{}))(t)
	var sizes []int
	var streamed, listed []string
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(resp.GetContainers()))
		for _, container := range resp.GetContainers() {
			streamed = append(streamed, container.GetId())
		}
	}
	if diff := cmp.Diff([]int{streamBatch, streamBatch, 2}, sizes); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	for _, container := range c.containers(t, nil) {
		listed = append(listed, container.GetId())
	}
	if !slices.Equal(listed, streamed) {
		t.Errorf("%d containers streamed, %d listed, or in another order", len(streamed), len(listed))
	}
}

// TestStreams asks every streaming list: the unimplemented ones say so on the first Recv, as gRPC does for unknown
// methods.
func TestStreams(t *testing.T) {
	open := map[string]func(*testing.T, *client) (int, error){
		"StreamContainers": func(t *testing.T, c *client) (int, error) {
			r, err := must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{}))(t).Recv()
			return len(r.GetContainers()), err
		},
		"StreamPodSandboxes": func(t *testing.T, c *client) (int, error) {
			r, err := must(c.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{}))(t).Recv()
			return len(r.GetPodSandboxes()), err
		},
		"StreamImages": func(t *testing.T, c *client) (int, error) {
			r, err := must(c.images.StreamImages(t.Context(), &runtimeapi.StreamImagesRequest{}))(t).Recv()
			return len(r.GetImages()), err
		},
	}
	want := map[string]int{
		"StreamContainers": 5, "StreamPodSandboxes": 3, "StreamImages": 3,
	}
	s := small()
	without := serve(t, s)
	s.Streaming = true
	with := serve(t, s)
	for name, first := range open {
		if n, err := first(t, with); n != want[name] || err != nil {
			t.Errorf("%s: %d items, %v; want %d", name, n, err, want[name])
		}
		if _, err := first(t, without); codeOf(err) != codes.Unimplemented {
			t.Errorf("%s without streaming: %v", name, err)
		}
	}
}
