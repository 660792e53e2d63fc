//go:build e2e

package containerd

import (
	"os"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndStacks captures dumps of a containerd and of shims that are well: from the debug socket, from its file,
// from its log; and none where kdiag is in another pid namespace. Dumps of those that are stopped, or hang, are faults
// of package faults, and dumps out of the journal are in package wholenode.
func TestEndToEndStacks(t *testing.T) {
	c := nodebox.Start(t, nodebox.Options{Debug: true})
	pods := c.RunPods(t, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	all := 0 // signals
	// first captures and returns the first dump: from where, or not with a problem. Each signal makes one dump.
	first := func(inside []string, from, problem string, args ...string) checks.StackSource {
		t.Helper()
		args = append([]string{"stacks", "--runtime-endpoint", c.Endpoint(), "-o", "json"}, args...)
		o := e2etest.Place{Program: e2etest.Program(t), Inside: inside}.Ask(t, args...)
		r := e2etest.Decode[checks.StacksReport](t, o)
		s, signals := r.Sources[0], strings.Count(o.Stderr, "send SIGUSR1 to ")
		all += signals
		dumps := strings.Count(e2etest.Read(t, c.Log()), "=== BEGIN goroutine stack dump ===")
		if !strings.Contains(s.Name, from) || !strings.Contains(s.Problem, problem) || dumps != all {
			t.Errorf("%s: %+v, %d dumps were written for %d signals\n%s", args, s, dumps, all, o.Stderr)
		}
		if well := problem == ""; well != (s.Goroutines > 4) || !well && signals > 0 ||
			well && (o.Code != 0 || r.Status != checks.Healthy || len(r.Holders)+len(r.Known) > 0) {
			t.Errorf("%s: exit code %d\n%s\n%s", args, o.Code, o.Stdout, o.Stderr)
		}
		return s
	}
	first(nil, c.DebugSocket(), "", "--capture")
	e2etest.Must(t, os.Remove(c.DebugSocket()))
	s := first(nil, ".stacks.log", "", "--capture")
	t.Cleanup(func() { _ = os.Remove(s.Name) })
	if s.PID != c.PID() || s.Role != "runtime" || s.Goroutines < 20 || s.Idle < s.Goroutines/2 {
		t.Errorf("source %+v", s)
	}
	first(nil, c.Log(), "", "--shim", pods[0].ID[:12])
	first([]string{"unshare", "--pid", "--fork"}, "", "another pid namespace", "--capture")
}
