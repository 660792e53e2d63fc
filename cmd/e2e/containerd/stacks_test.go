//go:build e2e

package containerd

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// capture captures dumps on a node with a containerd.
func capture(t *testing.T, c *nodebox.Containerd, args ...string) (e2etest.Outcome, *checks.StacksReport) {
	t.Helper()
	args = append([]string{"stacks", "--runtime-endpoint", c.Endpoint(), "-o", "json"}, args...)
	o := e2etest.Kdiag(t.Context(), t, args...)
	return o, e2etest.Decode[checks.StacksReport](t, o)
}

// holder captures dumps of a containerd in which an update of a pod's container waits for the stopped shim.
func holder(t *testing.T, n *node, sandboxID string, shim int) {
	// Two lists wait for the lock: a dump has no times in its first minutes, and one alone could be of the moment.
	ctx, cancel := context.WithCancel(t.Context())
	var lists sync.WaitGroup
	for range 2 {
		lists.Go(func() { _, _ = n.cri.ListContainers(ctx, nil) })
	}
	defer func() {
		cancel()
		lists.Wait()
	}()
	var o e2etest.Outcome
	var r *checks.StacksReport
	e2etest.Eventually(t, "the lists to wait", func() bool {
		o, r = capture(t, n.Containerd, "--capture", "--shim", strconv.Itoa(shim))
		return len(r.Holders) > 0
	})
	if o.Code != 1 || r.Status != checks.Unhealthy || len(r.Holders) == 0 {
		t.Fatalf("exit code %d\n%s", o.Code, o.Stdout)
	}
	h := r.Holders[0]
	if h.Call != "UpdateContainerResources" || h.WaitsFor != "ttrpc" || h.Process == nil || h.Process.PID != shim ||
		h.Subject == nil || h.Subject.ID != sandboxID {
		t.Errorf("holder %+v, want the update that waits for shim %d", h, shim)
	}
	resume := fmt.Sprintf("kill -CONT %d", shim)
	if !slices.ContainsFunc(r.NextSteps, func(s checks.NextStep) bool { return s.Command == resume }) {
		t.Errorf("next steps %+v, want %s", r.NextSteps, resume)
	}
	if s := r.Sources[len(r.Sources)-1]; s.PID != shim || s.Problem == "" || len(s.Kernel) == 0 {
		t.Errorf("source %+v, want the kernel stacks of the stopped shim", s)
	}
}

// TestEndToEndStacks captures dumps of a containerd and of shims that are well: from the debug socket, from its file,
// from its log; and none where they are stopped, or kdiag is in another pid namespace. Dumps of
// those that are broken are faults of package faults.
func TestEndToEndStacks(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{Debug: true})
	pods := e2etest.RunPods(t, c, nodebox.Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})
	all := 0 // signals
	// first captures and returns the first dump: from where, or not with a problem. Each signal makes one dump.
	first := func(from, problem string, args ...string) checks.StackSource {
		t.Helper()
		o, r := capture(t, c, args...)
		s, signals := r.Sources[0], strings.Count(o.Stderr, "send SIGUSR1 to ")
		all += signals
		log, err := os.ReadFile(c.Log())
		e2etest.Must(t, err)
		dumps := strings.Count(string(log), "=== BEGIN goroutine stack dump ===")
		if !strings.Contains(s.Name, from) || !strings.Contains(s.Problem, problem) || dumps != all {
			t.Errorf("%s: %+v, %d dumps were written for %d signals\n%s", args, s, dumps, all, o.Stderr)
		}
		if well := problem == ""; well != (s.Goroutines > 4) || well == (len(s.Kernel) > 0) || !well && signals > 0 ||
			well && (o.Code != 0 || r.Status != checks.Healthy || len(r.Holders)+len(r.Known) > 0) {
			t.Errorf("%s: exit code %d\n%s\n%s", args, o.Code, o.Stdout, o.Stderr)
		}
		return s
	}
	stops := func(pid int) {
		e2etest.Eventually(t, "all threads stopped", func() bool {
			return !slices.ContainsFunc([]string{") R ", ") S ", ") D "}, func(state string) bool {
				return e2etest.ThreadHas(pid, "stat", state)
			})
		})
	}

	first(c.DebugSocket(), "", "--capture")
	e2etest.Must(t, os.Remove(c.DebugSocket()))
	s := first(".stacks.log", "", "--capture")
	t.Cleanup(func() { _ = os.Remove(s.Name) })
	if s.PID != c.PID() || s.Role != "runtime" || s.Goroutines < 20 || s.Idle < s.Goroutines/2 {
		t.Errorf("source %+v", s)
	}
	first(c.Log(), "", "--shim", pods[0].ID[:12])
	apart := e2etest.Place{Program: e2etest.Program(t), Inside: []string{"unshare", "--pid", "--fork"}}.Ask(t,
		"stacks", "--capture", "-o", "json", "--runtime-endpoint", c.Endpoint())
	s = e2etest.Decode[checks.StacksReport](t, apart).Sources[0]
	if !strings.Contains(s.Problem, "another pid namespace") || strings.Contains(apart.Stderr, "SIGUSR1") {
		t.Errorf("from another pid namespace: %+v\n%s", s, apart.Stderr)
	}

	e2etest.Must(t, c.FreezeShim(t.Context(), pods[1].ID))
	shim, err := c.Shim(pods[1].ID)
	e2etest.Must(t, err)
	stops(shim)
	if s := first("", "is stopped", "--shim", pods[1].ID); s.ObjectID != pods[1].ID {
		t.Errorf("of a stopped shim: %+v", s)
	}
	e2etest.Must(t, c.ThawShim(pods[1].ID))

	e2etest.Must(t, c.Pause(t.Context()))
	stops(c.PID())
	first("", "is stopped", "--capture")
	first("", "which is stopped", "--shim", pods[0].ID)
	e2etest.Must(t, c.Resume())
	first(".stacks.log", "", "--capture") // a signal that was sent meanwhile would make another dump
}

// TestEndToEndStacksInJournal captures dumps on a node where containerd logs to journald and cannot make its file.
// journald splits its dump into pieces of 48 KiB.
func TestEndToEndStacksInJournal(t *testing.T) {
	n := e2etest.Node{Box: e2etest.NewBox(t)}
	e2etest.Must(t, n.Box.Boot(t.Context()))
	pods, err := nodebox.RunPods(t.Context(), n.Box.Endpoint(),
		nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	e2etest.Must(t, err)
	const many = 300
	for range many { // each has goroutines in containerd
		conn, err := net.Dial("unix", strings.TrimPrefix(n.Box.Endpoint(), "unix://"))
		e2etest.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	n.Sh(t, "mkdir /tmp/containerd.$(pidof containerd).stacks.log")
	inside := n.Place().Ask(t, "stacks", "--capture", "--shim", pods[0].ID, "-o", "json", "--runtime-endpoint",
		"unix:///run/containerd/containerd.sock")
	var got []string
	for _, s := range e2etest.Decode[checks.StacksReport](t, inside).Sources {
		got = append(got, fmt.Sprintf("%s from %s, many: %v%s%s", s.Process, s.Name, s.Goroutines > many, s.Problem, s.Cut))
	}
	want := []string{
		"containerd from the journal, many: true", "containerd-shim-runc-v2 from the journal, many: false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, inside.Stderr)
	}
}
