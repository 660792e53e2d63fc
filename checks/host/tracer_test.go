package host

import (
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTracer stops a process as a debugger does, and reads by whom.
func TestTracer(t *testing.T) {
	people, err := ReadPopulation(t.Context(), "/", testNames)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	runtime.LockOSThread() // the thread that attaches is the tracer
	defer runtime.UnlockOSThread()
	if err := unix.PtraceAttach(pid); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
	p, err := people.One(pid)
	if err != nil || p.State != 't' || p.Tracer != unix.Gettid() {
		t.Errorf("state %c, tracer %d, want %d; %v", p.State, p.Tracer, unix.Gettid(), err)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		t.Error(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
