package crictl

import (
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkDecodeContainers decodes 100,000 containers of 5,000 pods, twenty exited attempts each, as a node with
// crash loops and no garbage collection has them. kdiag gets the message in the pieces of 16 KiB in which gRPC has it;
// the generated types get it in one piece, which gRPC's own codec would first have to make.
func BenchmarkDecodeContainers(b *testing.B) {
	const pods, attempts = 5000, 20
	list, _ := kubeletLists(b, pods, attempts)
	data := mustMarshal(b, list)
	list = nil
	b.Run("kdiag", func(b *testing.B) {
		in := cut(data, 16<<10)
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			d := newContainerDecoder()
			if err := d.decode(in); err != nil || len(d.entries) != pods*attempts {
				b.Fatal(len(d.entries), err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			var resp runtimeapi.ListContainersResponse
			if err := proto.Unmarshal(data, &resp); err != nil || len(resp.Containers) != pods*attempts {
				b.Fatal(len(resp.Containers), err)
			}
		}
	})
}
