package fake

import (
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkList100k is what the server itself spends on a list of 100,000 containers: the first time, and again while
// nothing changes.
func BenchmarkList100k(b *testing.B) {
	srv, err := New(Scenario{Name: "large", Pods: []PodGroup{
		{Name: "p", Count: 100, Containers: []ContainerGroup{{Name: "c", Exited: 999}}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	marshal := func(b *testing.B) {
		resp := &runtimeapi.ListContainersResponse{}
		resp.ProtoReflect().SetUnknown(srv.store.listContainers(nil).wire)
		if _, err := proto.Marshal(resp); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			srv.store.mu.Lock()
			srv.store.changed()
			srv.store.mu.Unlock()
			marshal(b)
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		marshal(b)
		for b.Loop() {
			marshal(b)
		}
	})
}
