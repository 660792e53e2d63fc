package gc

import (
	"fmt"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// crowd is a node of 200 containers for each of so many pods, nearly all exited.
func crowd(pods int) Node {
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
	return w.node
}

func BenchmarkMake100000(b *testing.B) {
	n := crowd(500)
	b.ReportAllocs()
	for b.Loop() {
		if p := Make(n, Rules{}, noon()); len(p.Remove) != 500*198 {
			b.Fatalf("%d candidates", len(p.Remove))
		}
	}
}
