package gc

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// crowd is a node of 100,000 containers over 500 pods, nearly all exited.
func crowd() Node {
	const pods, each = 500, 200
	var n Node
	for p := range pods {
		pod := &crictl.Pod{
			Namespace: "batch", Name: fmt.Sprintf("job-%04d", p),
			UID: fmt.Sprintf("%08d-aaaa-bbbb-cccc-000000000000", p),
		}
		sandbox := fmt.Sprintf("%064x", p)
		n.Sandboxes = append(n.Sandboxes, crictl.PodSandbox{
			ID: sandbox, Pod: pod, ConfigSource: "api",
			CreatedAt: ago(500 * hour),
		})
		for c := range each {
			state := exited
			if c == each-1 {
				state = running
			}
			n.Containers = append(n.Containers, crictl.Container{
				ID: fmt.Sprintf("%032x%032x", p, c), SandboxID: sandbox, Name: "load", Pod: pod, State: state, Size: 700,
				CreatedAt: ago(time.Duration(each-c) * hour), Attempt: uint32(c),
			})
		}
	}
	n.Ends = map[string]End{}
	for i := range n.Containers {
		n.Ends[n.Containers[i].ID] = End{FinishedAt: noon().Add(-time.Minute)}
	}
	return n
}

func BenchmarkMake100000(b *testing.B) {
	n := crowd()
	b.ReportAllocs()
	for b.Loop() {
		if p := Make(n, Rules{}, noon()); len(p.Remove) != 500*198 {
			b.Fatalf("%d candidates", len(p.Remove))
		}
	}
}

func TestMakeMemory(t *testing.T) {
	n := crowd()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Make(n, Rules{}, noon())
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20); got > most {
		t.Errorf("planning 100,000 containers takes %d bytes, more than %d", got, most)
	}
}
