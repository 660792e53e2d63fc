package crictl

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/crictl/fake"
)

// serveNode serves ten pods, each with a running container, ten exited ones and eight dead sandboxes, and returns a
// client. Its lists of containers and of sandboxes have about 85 and 50 KB.
func serveNode(t *testing.T, streaming bool, limit int, faults ...fake.Fault) *Client {
	t.Helper()
	return newClient(t, Options{}, fake.Scenario{
		Streaming: streaming, Limits: fake.MessageLimits{Send: limit}, Faults: faults,
		Pods: []fake.PodGroup{
			{Name: "web", Count: 10, DeadBefore: 8, Containers: []fake.ContainerGroup{{Name: "app", Exited: 10}}},
		},
	})
}

func TestListContainers(t *testing.T) {
	const refused = "ResourceExhausted: grpc: trying to send message larger than max (900 vs. 16)"
	for _, tc := range []struct {
		name      string
		streaming bool
		limit     int // of the server's messages, in bytes; 0 for 16 MiB
		faults    []fake.Fault
		want      ListMode
		calls     []string // nil is not compared
		again     []string // of a second list by the same client
		partial   bool
		items     int // in a partial list
	}{
		{
			name: "streams", streaming: true, want: ModeStream,
			calls: []string{"StreamContainers OK"}, again: []string{"StreamContainers OK"},
		},
		{
			name: "falls back and remembers", want: ModeUnary,
			calls: []string{"StreamContainers Unimplemented", "ListContainers OK"},
			again: []string{"ListContainers OK"},
		},
		{name: "one state of the node is too large", limit: 20 << 10, want: ModeFiltered},
		{name: "one state of a pod is too large", limit: 5 << 10, want: ModeFiltered, partial: true, items: 10},
		{
			name: "hung", streaming: true, faults: []fake.Fault{{RPC: "StreamContainers", Hang: true}},
			want:  ModeStream,
			calls: []string{"StreamContainers DeadlineExceeded"}, partial: true,
		},
		{
			name:   "another exhaustion",
			faults: []fake.Fault{{RPC: "ListContainers", Error: "ResourceExhausted: too many"}},
			want:   ModeUnary, partial: true,
			calls: []string{"StreamContainers Unimplemented", "ListContainers ResourceExhausted"},
		},
		{
			name: "a runtime that hangs is not asked further", want: ModeFiltered, partial: true,
			faults: []fake.Fault{
				{RPC: "ListContainers", Error: refused, First: 1}, {RPC: "ListContainers", Hang: true},
			},
			calls: []string{
				"StreamContainers Unimplemented", "ListContainers ResourceExhausted", "ListContainers DeadlineExceeded",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				whole := serveNode(t, false, 0).ListContainers(t.Context(), Filter{}, ModeUnary)
				c := serveNode(t, tc.streaming, tc.limit, tc.faults...)
				for i, calls := range [][]string{tc.calls, tc.again} {
					if i > 0 && calls == nil {
						break
					}
					list := c.ListContainers(t.Context(), Filter{}, "")
					if list.Mode != tc.want || list.Complete == tc.partial {
						t.Errorf("mode %s, complete %t; want %s, %t", list.Mode, list.Complete, tc.want, !tc.partial)
					}
					var made []string
					for _, call := range list.Calls {
						made = append(made, fmt.Sprintf("%s %s", call.Method, call.Code))
					}
					if diff := cmp.Diff(calls, made); diff != "" && calls != nil {
						t.Errorf("calls (-want +got):\n%s", diff)
					}
					byID := cmpopts.SortSlices(func(a, b Container) bool { return a.ID < b.ID })
					if diff := cmp.Diff(whole.Containers, list.Containers, byID); !tc.partial && diff != "" {
						t.Errorf("containers (-want +got):\n%s", diff)
					}
					if tc.partial && len(list.Containers) != tc.items {
						t.Errorf("%d containers, want %d", len(list.Containers), tc.items)
					}
					if (!tc.partial || tc.limit > 0) && list.Bytes != whole.Calls[0].Bytes {
						t.Errorf("%d bytes, want %d", list.Bytes, whole.Calls[0].Bytes)
					}
				}
			})
		})
	}
}

// TestListSandboxesByPod lists sandboxes of which one message does not hold all dead ones. Pods that neither a
// container nor a ready sandbox names are missed, which the size shows.
func TestListSandboxesByPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := serveNode(t, false, 0).ListPodSandbox(t.Context(), Filter{}, "")
		c := serveNode(t, false, 15<<10)
		list := c.ListPodSandbox(t.Context(), Filter{}, "")
		if list.Mode != ModeFiltered || !list.Complete || list.Bytes != whole.Bytes || len(list.Sandboxes) != 90 {
			t.Errorf("mode %s, complete %t, %d bytes of %d, %d sandboxes of %d",
				list.Mode, list.Complete, list.Bytes, whole.Bytes, len(list.Sandboxes), len(whole.Sandboxes))
		}
		for i := range list.Sandboxes {
			if s := &list.Sandboxes[i]; s.State == SandboxReady {
				c.RemovePodSandbox(t.Context(), s.ID) // and its containers
			}
		}
		if list := c.ListPodSandbox(t.Context(), Filter{}, ""); list.Complete {
			t.Error("a list without the orphans is called complete")
		}
	})
}
