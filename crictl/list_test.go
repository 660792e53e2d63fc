package crictl

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A node is the content of a runtime that filters as CRI asks.
type node struct {
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
}

// crowdedNode has pods with one running container each and any number of exited ones in every pod.
func crowdedNode(pods, exited int) *node {
	n := &node{}
	for p := range pods {
		for a := range exited {
			n.containers = append(n.containers, kubeletContainer(p, a))
		}
		c := kubeletContainer(p, exited)
		c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		n.containers = append(n.containers, c)
		s := kubeletSandbox(p, 1)
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
		n.sandboxes = append(n.sandboxes, s)
	}
	return n
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (n *node) listContainers(f *runtimeapi.ContainerFilter) *runtimeapi.ListContainersResponse {
	resp := &runtimeapi.ListContainersResponse{}
	for _, c := range n.containers {
		if (f.GetId() == "" || f.GetId() == c.Id) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.PodSandboxId) &&
			(f.GetState() == nil || f.GetState().GetState() == c.State) && matches(c.Labels, f.GetLabelSelector()) {
			resp.Containers = append(resp.Containers, c)
		}
	}
	return resp
}

func (n *node) listSandboxes(f *runtimeapi.PodSandboxFilter) *runtimeapi.ListPodSandboxResponse {
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range n.sandboxes {
		if (f.GetId() == "" || f.GetId() == s.Id) && (f.GetState() == nil || f.GetState().GetState() == s.State) &&
			matches(s.Labels, f.GetLabelSelector()) {
			resp.Items = append(resp.Items, s)
		}
	}
	return resp
}

// unary are the node's unary lists.
func (n *node) unary(t *testing.T) map[string]handler {
	return map[string]handler{
		"ListContainers": func(_ context.Context, req []byte, send func([]byte) error) error {
			var r runtimeapi.ListContainersRequest
			if err := proto.Unmarshal(req, &r); err != nil {
				return err
			}
			return send(mustMarshal(t, n.listContainers(r.GetFilter())))
		},
		"ListPodSandbox": func(_ context.Context, req []byte, send func([]byte) error) error {
			var r runtimeapi.ListPodSandboxRequest
			if err := proto.Unmarshal(req, &r); err != nil {
				return err
			}
			return send(mustMarshal(t, n.listSandboxes(r.GetFilter())))
		},
	}
}

// streaming are the node's lists with the streaming ones, which send a few entries at a time.
func (n *node) streaming(t *testing.T, batch int) map[string]handler {
	h := n.unary(t)
	h["StreamContainers"] = func(_ context.Context, _ []byte, send func([]byte) error) error {
		for some := range slices.Chunk(n.containers, batch) {
			if err := send(mustMarshal(t, &runtimeapi.StreamContainersResponse{Containers: some})); err != nil {
				return err
			}
		}
		return nil
	}
	h["StreamPodSandboxes"] = func(_ context.Context, _ []byte, send func([]byte) error) error {
		for some := range slices.Chunk(n.sandboxes, batch) {
			if err := send(mustMarshal(t, &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: some})); err != nil {
				return err
			}
		}
		return nil
	}
	return h
}

func methods(calls []Call) []string {
	var out []string
	for _, c := range calls {
		out = append(out, fmt.Sprintf("%s %s", c.Method, c.Code))
	}
	return out
}

func ids(list *ContainerList) []string {
	var out []string
	for i := range list.Containers {
		out = append(out, list.Containers[i].ID)
	}
	slices.Sort(out)
	return out
}

func wantIDs(n *node) []string {
	var out []string
	for _, c := range n.containers {
		out = append(out, c.Id)
	}
	slices.Sort(out)
	return out
}

func TestListModes(t *testing.T) {
	n := crowdedNode(3, 5)
	size := proto.Size(n.listContainers(nil))
	for _, tc := range []struct {
		name     string
		handlers map[string]handler
		ask      ListMode
		want     ListMode
		calls    []string
		again    []string // of a second list by the same client
	}{
		{
			name: "streams", handlers: n.streaming(t, 4), want: ModeStream,
			calls: []string{"StreamContainers OK"}, again: []string{"StreamContainers OK"},
		},
		{
			name: "falls back and remembers", handlers: n.unary(t), want: ModeUnary,
			calls: []string{"StreamContainers Unimplemented", "ListContainers OK"}, again: []string{"ListContainers OK"},
		},
		{
			name: "unary as asked", handlers: n.streaming(t, 4), ask: ModeUnary, want: ModeUnary,
			calls: []string{"ListContainers OK"}, again: []string{"ListContainers OK"},
		},
		{
			name: "filtered as asked", handlers: n.unary(t), ask: ModeFiltered, want: ModeFiltered,
			calls: []string{"ListContainers OK", "ListContainers OK", "ListContainers OK", "ListContainers OK"},
			again: []string{"ListContainers OK", "ListContainers OK", "ListContainers OK", "ListContainers OK"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, Options{}, tc.handlers)
				for _, calls := range [][]string{tc.calls, tc.again} {
					list := c.ListContainers(t.Context(), Filter{}, tc.ask)
					if list.Mode != tc.want || !list.Complete || list.Bytes != size {
						t.Errorf("got mode %s, complete %t, %d bytes of %d", list.Mode, list.Complete, list.Bytes, size)
					}
					if diff := cmp.Diff(calls, methods(list.Calls)); diff != "" {
						t.Error(diff)
					}
					if diff := cmp.Diff(wantIDs(n), ids(list)); diff != "" {
						t.Error(diff)
					}
				}
			})
		})
	}
}

// TestListFilteredBySandbox has a server whose messages hold one state of a pod but not one state of the node.
func TestListFilteredBySandbox(t *testing.T) {
	n := crowdedNode(10, 10)
	whole := proto.Size(n.listContainers(nil))
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{}, n.unary(t), grpc.MaxSendMsgSize(20<<10))
		list := c.ListContainers(t.Context(), Filter{}, "")
		if list.Mode != ModeFiltered || !list.Complete || list.Bytes != whole {
			t.Errorf("got mode %s, complete %t, %d bytes of %d", list.Mode, list.Complete, list.Bytes, whole)
		}
		if diff := cmp.Diff(wantIDs(n), ids(list)); diff != "" {
			t.Error(diff)
		}
		refused := list.Calls[1]
		if refused.Code != ResourceExhausted || refused.Bytes != whole {
			t.Errorf("the refused call is %+v, want its size %d", refused, whole)
		}
	})
}

func TestListTooLargeForAnyFilter(t *testing.T) {
	n := crowdedNode(2, 30)
	whole := proto.Size(n.listContainers(nil))
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{}, n.unary(t), grpc.MaxSendMsgSize(10<<10))
		list := c.ListContainers(t.Context(), Filter{}, "")
		if list.Complete || list.Bytes != whole || len(list.Containers) != 2 {
			t.Errorf("complete %t, %d bytes of %d, %d containers", list.Complete, list.Bytes, whole, len(list.Containers))
		}
	})
}

func TestListSandboxesByPod(t *testing.T) {
	n := crowdedNode(6, 1)
	for p := range 6 {
		for a := range 8 {
			s := kubeletSandbox(p, a)
			s.Id = fmt.Sprintf("%d-%d", p, a)
			n.sandboxes = append(n.sandboxes, s)
		}
	}
	whole := proto.Size(n.listSandboxes(nil))
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{}, n.unary(t), grpc.MaxSendMsgSize(14<<10))
		list := c.ListPodSandbox(t.Context(), Filter{}, "")
		if list.Mode != ModeFiltered || !list.Complete || list.Bytes != whole || len(list.Sandboxes) != len(n.sandboxes) {
			t.Errorf("mode %s, complete %t, %d bytes of %d, %d sandboxes of %d",
				list.Mode, list.Complete, list.Bytes, whole, len(list.Sandboxes), len(n.sandboxes))
		}
		// Pods that neither a container nor a ready sandbox names cannot be found, and the size tells.
		orphans := kubeletSandbox(900, 0)
		for a := range 8 {
			o := proto.Clone(orphans).(*runtimeapi.PodSandbox)
			o.Id = fmt.Sprintf("orphan-%d", a)
			n.sandboxes = append(n.sandboxes, o)
		}
		if list := c.ListPodSandbox(t.Context(), Filter{}, ""); list.Complete {
			t.Error("a list without the orphans is called complete")
		}
	})
}

// TestListSeenTwice has a container that exits between two filtered lists.
func TestListSeenTwice(t *testing.T) {
	n := crowdedNode(1, 0)
	h := n.unary(t)
	inner := h["ListContainers"]
	h["ListContainers"] = func(ctx context.Context, req []byte, send func([]byte) error) error {
		err := inner(ctx, req, send)
		var r runtimeapi.ListContainersRequest
		if proto.Unmarshal(req, &r) == nil && r.GetFilter().GetState().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			n.containers[0] = proto.Clone(n.containers[0]).(*runtimeapi.Container)
			n.containers[0].State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		list := newClient(t, Options{}, h).ListContainers(t.Context(), Filter{}, ModeFiltered)
		if len(list.Containers) != 1 || list.Containers[0].State != ContainerExited {
			t.Errorf("got %+v", list.Containers)
		}
	})
}

func TestListFailures(t *testing.T) {
	n := crowdedNode(2, 2)
	tooMany := fail(status.Error(codes.ResourceExhausted, "too many requests"))
	broken := func(_ context.Context, _ []byte, send func([]byte) error) error {
		if err := send(mustMarshal(t, &runtimeapi.StreamContainersResponse{Containers: n.containers[:2]})); err != nil {
			return err
		}
		return status.Error(codes.Internal, "broke")
	}
	oversize := fail(status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (900 vs. 16)"))
	for _, tc := range []struct {
		name     string
		handlers map[string]handler
		mode     ListMode
		calls    []string
		items    int
	}{
		{
			name: "hung", handlers: map[string]handler{"StreamContainers": hang}, mode: ModeStream,
			calls: []string{"StreamContainers DeadlineExceeded"},
		},
		{
			name: "no CRI", handlers: nil, mode: ModeUnary,
			calls: []string{"StreamContainers Unimplemented", "ListContainers Unimplemented"},
		},
		{
			name: "another exhaustion", handlers: map[string]handler{"ListContainers": tooMany}, mode: ModeUnary,
			calls: []string{"StreamContainers Unimplemented", "ListContainers ResourceExhausted"},
		},
		{
			name: "a stream that breaks keeps what came", handlers: map[string]handler{"StreamContainers": broken}, mode: ModeStream,
			calls: []string{"StreamContainers Internal"}, items: 2,
		},
		{
			name: "a runtime that hangs is not asked further", mode: ModeFiltered,
			handlers: map[string]handler{
				"ListContainers": func(ctx context.Context, req []byte, send func([]byte) error) error {
					var r runtimeapi.ListContainersRequest
					if proto.Unmarshal(req, &r) == nil && r.GetFilter().GetState() != nil {
						return hang(ctx, req, send)
					}
					return oversize(ctx, req, send)
				},
			},
			calls: []string{
				"StreamContainers Unimplemented", "ListContainers ResourceExhausted",
				"ListContainers DeadlineExceeded",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := newClient(t, Options{}, tc.handlers).ListContainers(t.Context(), Filter{}, "")
				if list.Complete || list.Mode != tc.mode || len(list.Containers) != tc.items {
					t.Errorf("complete %t, mode %s, %d containers", list.Complete, list.Mode, len(list.Containers))
				}
				if diff := cmp.Diff(tc.calls, methods(list.Calls)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
