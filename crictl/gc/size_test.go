package gc

import (
	"fmt"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// crowd is a node of 200 containers for each of so many pods, nearly all exited.
func crowd(pods int) *world {
	const each = 200
	w := newWorld()
	for p := range pods {
		pod, sandbox := fmt.Sprintf("job-%04d", p), fmt.Sprintf("%064x", p)
		w.sandbox(sandbox, pod, crictl.SandboxReady, 500*hour)
		for c := range each - 1 {
			w.container(fmt.Sprintf("%032x%032x", p, c), sandbox, pod, "load", exited, time.Duration(each-c)*hour)
		}
		w.container(fmt.Sprintf("%064x", pods+p), sandbox, pod, "load", running, hour)
	}
	return w
}

func BenchmarkMake100000(b *testing.B) {
	w := crowd(500)
	b.ReportAllocs()
	for b.Loop() {
		if p := w.plan(w.node, Rules{}); len(p.Remove) != 500*198 {
			b.Fatalf("%d candidates", len(p.Remove))
		}
	}
}
