//go:build e2e

package capture

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestMain is also what TestEndToEndJournal runs in a node.
func TestMain(m *testing.M) {
	if os.Getenv("CAPTURE_TEST") == "inside" {
		if err := inside(); err != nil {
			fmt.Println(err)
		}
		return
	}
	beDaemon()
	os.Exit(m.Run())
}

func newScene(t *testing.T, root, socket string) *scene {
	t.Helper()
	s := &scene{}
	s.in = Input{Root: root, Socket: socket, Say: func(line string) { s.said = append(s.said, line) }}
	s.look(t)
	return s
}

// look reads the processes again, without those of other runtimes on this machine.
func (s *scene) look(t *testing.T) {
	t.Helper()
	all, err := processes(t.Context(), s.in.Root)
	must(t, err)
	socket := strings.TrimPrefix(s.in.Socket, "unix://")
	s.in.Processes, s.said = slices.DeleteFunc(all, func(p host.Process) bool {
		return p.Address != socket && !slices.Contains(p.Sockets, socket)
	}), nil
}

func processes(ctx context.Context, root string) ([]host.Process, error) {
	var names host.Names
	for _, in := range crictl.Installations() {
		names.Runtimes, names.Shims = append(names.Runtimes, in.Processes...), append(names.Shims, in.Shims...)
	}
	all, err := host.ReadPopulation(ctx, root, names, host.Population{})
	return all.Processes(), err
}

func goroutines(text []byte) int {
	return bytes.Count(append([]byte("\n"), text...), []byte("\ngoroutine "))
}

// TestEndToEndCapture takes dumps of a private containerd and its shims: from the debug socket, from its file, from its
// log; and none where they are stopped.
func TestEndToEndCapture(t *testing.T) {
	if missing := nodebox.Missing(false); missing != "" {
		t.Fatal(missing)
	}
	ctx := t.Context()
	box, err := nodebox.Start(ctx, nodebox.Options{Debug: true})
	must(t, err)
	t.Cleanup(func() { must(t, box.Close()) })
	pods, err := box.RunPods(ctx, nodebox.Pods{Count: 2, Containers: 1})
	must(t, err)
	s := newScene(t, "/", box.Endpoint())

	check := func(what string, d Dump, from string, least, signals int) {
		t.Helper()
		if n := goroutines(d.Text); n < least || !strings.Contains(d.Source.Name, from) || s.signals() != signals {
			t.Errorf("%s: %d goroutines, %+v, %q", what, n, d.Source, s.said)
		}
	}
	stuck := func(what string, d Dump, problem string) {
		t.Helper()
		if len(d.Text) > 0 || len(d.Source.Kernel) == 0 || !strings.Contains(d.Source.Problem, problem) ||
			s.signals() > 0 {
			t.Errorf("%s: %+v, %q", what, d.Source, s.said)
		}
	}
	shim := func(id string) Dump {
		t.Helper()
		p, err := s.in.FindShim(id)
		must(t, err)
		return Shims(ctx, s.in, []host.Process{p})[0]
	}

	check("of the debug socket", Runtime(ctx, s.in), box.DebugSocket(), 20, 0)
	must(t, os.Remove(box.DebugSocket()))
	d := Runtime(ctx, s.in)
	file := d.Source.Name
	t.Cleanup(func() { _ = os.Remove(file) })
	check("of the file", d, ".stacks.log", 20, 1)
	check("of a shim", shim(pods[0].ID[:12]), box.Log(), 5, 2)

	must(t, box.FreezeShim(ctx, pods[1].ID))
	s.awaitStopped(t, host.RoleShim, pods[1].ID)
	s.look(t)
	d = shim(pods[1].ID)
	if stuck("of a stopped shim", d, "is stopped"); d.Source.ObjectID != pods[1].ID {
		t.Errorf("of a stopped shim: %+v", d.Source)
	}
	must(t, box.ThawShim(pods[1].ID))

	logged := dumpsIn(t, box.Log())
	must(t, box.Pause(ctx))
	s.awaitStopped(t, host.RoleRuntime, "")
	stuck("of a stopped daemon", Runtime(ctx, s.in), "is stopped")
	stuck("of a shim with a stopped daemon", shim(pods[0].ID), "which is stopped")
	must(t, box.Resume())
	// A signal that was sent meanwhile would make another dump.
	check("after it goes on", Runtime(ctx, s.in), ".stacks.log", 20, 1)
	if n := dumpsIn(t, box.Log()) - logged; n != 1 {
		t.Errorf("after it goes on, %d dumps were written", n)
	}
}

// awaitStopped waits until all threads of a process are stopped.
func (s *scene) awaitStopped(t *testing.T, role host.Role, id string) {
	t.Helper()
	p := s.in.with(role, func(p host.Process) bool { return p.ObjectID == id })[0]
	for end := time.Now().Add(time.Minute); stands(t.Context(), "/", p.PID) != "is stopped"; time.Sleep(pollEvery) {
		if time.Now().After(end) {
			t.Fatalf("%+v is not stopped", p)
		}
	}
}

func dumpsIn(t *testing.T, log string) int {
	t.Helper()
	text, err := os.ReadFile(log)
	must(t, err)
	return bytes.Count(text, []byte(logBegin))
}

// TestEndToEndJournal takes dumps on a node where containerd logs to journald and cannot make its file. journald splits
// its dump into pieces of 48 KiB. From outside the node's pid namespace nothing is signalled.
func TestEndToEndJournal(t *testing.T) {
	box := nodebox.TestBox(t)
	must(t, box.Boot(t.Context()))
	pods := nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning}
	_, err := nodebox.RunPods(t.Context(), box.Endpoint(), pods)
	must(t, err)

	s := newScene(t, "/proc/"+strconv.Itoa(box.Leader())+"/root", box.Endpoint())
	d := Runtime(t.Context(), s.in)
	if !strings.Contains(d.Source.Problem, "another pid namespace") || s.signals() != 0 {
		t.Errorf("from outside: %+v", d.Source)
	}

	self, err := os.Executable()
	must(t, err)
	must(t, box.CopyIn(self, "/usr/local/bin/capture.test"))
	out, err := box.Exec(t.Context(), "env", "CAPTURE_TEST=inside", "/usr/local/bin/capture.test")
	must(t, err)
	if diff := cmp.Diff("containerd-shim-runc-v2: whole: true, many: false, from the journal\n"+
		"containerd: whole: true, many: true, from the journal\n", string(out)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// inside takes the dumps of TestEndToEndJournal in the node.
func inside() error {
	const socket = "/run/containerd/containerd.sock"
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	const many = 300
	for range many { // each has goroutines in containerd
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		defer conn.Close()
	}
	all, err := processes(ctx, "/")
	if err != nil {
		return err
	}
	in := Input{Root: "/", Socket: "unix://" + socket, Processes: all}
	daemon := slices.IndexFunc(all, func(p host.Process) bool { return p.Role == host.RoleRuntime })
	shim := slices.IndexFunc(all, func(p host.Process) bool { return p.Role == host.RoleShim })
	if err := os.Mkdir("/tmp/containerd."+strconv.Itoa(all[daemon].PID)+".stacks.log", 0o755); err != nil {
		return err
	}
	for _, d := range append(Shims(ctx, in, all[shim:shim+1]), Runtime(ctx, in)) {
		whole := isWhole(d.Text) && d.Source.Cut == ""
		fmt.Printf("%s: whole: %v, many: %v, from %s%s\n", d.Source.Process, whole, goroutines(d.Text) > many,
			d.Source.Name, d.Source.Problem)
	}
	return nil
}
