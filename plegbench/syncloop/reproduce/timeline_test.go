package reproduce

import (
	"fmt"
	"testing"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestJudge(t *testing.T) {
	const down = "container runtime is down"
	for _, c := range []struct {
		want, message string
		notReady, ok  bool
	}{
		{"", "", false, true},
		{"", "x", true, false},
		{"is down", "", false, false},
		{"is down", down, true, true},
		{"is down", "PLEG is not healthy", true, false},
	} {
		looptest.Equal(t, fmt.Sprintf("%+v", c), c.ok, judge(c.want, c.message, c.notReady) == "")
	}
}
