package host

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets a copy of this binary play a runtime's process: with the argument "wait-for-stdin" it lives until its
// standard input ends. With that of a child it is one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildArgument {
		os.Exit(Serve(os.Args[2:], os.Stdout))
	}
	if slices.Contains(os.Args, "wait-for-stdin") {
		os.Stdout.WriteString("up\n")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	if slices.Contains(os.Args, "vfork-until-stdin-ends") {
		os.Stdout.WriteString("up\n")
		vforkUntilStdinEnds()
		os.Exit(0)
	}
	if code, ok := apart(); ok {
		os.Exit(code)
	}
	if slices.Contains(os.Args, "ask-systemd") {
		askSystemdAsJSON()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// apart runs the tests again in a mount namespace of their own: what they mount and let hang is nobody else's affair, and
// goes when they end, however they do.
func apart() (code int, ok bool) {
	const mark = "KDIAG_TEST_APART"
	if os.Geteuid() != 0 || os.Getenv(mark) != "" {
		return 0, false
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if cmd.Start() != nil { // not root enough
		return 0, false
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), true
}

// TestProcessesReal finds a real process, and sees that it was stopped.
func TestProcessesReal(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "runc")
	copyFile(t, self, program)
	before := time.Now()
	cmd := exec.Command(program, "kill", idA, "wait-for-stdin")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGCONT)
		stdin.Close()
		cmd.Wait()
	}()
	if _, err := io.ReadFull(stdout, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("waiting for the stop: %v, %v", status, err)
	}

	found := hostPeople(t).Processes()
	i := slices.IndexFunc(found, func(p Process) bool { return p.PID == cmd.Process.Pid })
	if i < 0 {
		t.Fatalf("Processes did not find process %d among %v", cmd.Process.Pid, found)
	}
	p := found[i]
	if p.Role != RoleOCI || p.ObjectID != idA || p.Name != "runc" || p.State != 'T' || p.PPID != os.Getpid() {
		t.Errorf("Processes says %+v of a stopped runc", p)
	}
	// Start times count in hundredths of a second from a time of boot in whole seconds.
	if age := p.Started.Sub(before); age < -2*time.Second || age > 2*time.Minute {
		t.Errorf("Started = %v, want about %v", p.Started, before)
	}
	if os.Geteuid() == 0 && !strings.Contains(p.Wchan, "stop") {
		t.Logf("this kernel does not tell where a stopped process waits: %q", p.Wchan)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
