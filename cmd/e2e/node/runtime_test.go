//go:build e2e

package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// A program is kdiag as it is installed, and the runtime that it asks.
type program struct {
	path, endpoint string
	inside         []string // a command that runs it elsewhere
}

// TestMain becomes the process that waitInKernel or lockMap starts, where the environment has it.
func TestMain(m *testing.M) {
	if os.Getenv(vforkEnv) != "" {
		vforkUntilStdinEnds()
	}
	if name := os.Getenv(mapEnv); name != "" {
		holdMap(name)
	}
	nodebox.Main(m)
}

// run runs a command of kdiag as a person does: as a process, in the namespaces of the calling thread. One that has not
// ended well after its --timeout fails the test.
func (p program) run(t *testing.T, as *syscall.SysProcAttr, args ...string) e2etest.Outcome {
	t.Helper()
	const timeout, grace = 20 * time.Second, time.Minute // the grace is for a busy machine
	args = append(args, "--runtime-endpoint", p.endpoint, "--timeout", timeout.String())
	ctx, cancel := context.WithTimeout(t.Context(), timeout+grace)
	defer cancel()
	argv := slices.Concat(p.inside, []string{p.path}, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.SysProcAttr = &stdout, &stderr, "/", as
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	_ = cmd.Run() // the test checks the exit code
	if ctx.Err() != nil {
		t.Fatalf("kdiag %s has not ended %v after its timeout", strings.Join(args, " "), grace)
	}
	return e2etest.Outcome{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// node asks for everything, as JSON, and shows in the test's log what a person would read.
func (p program) node(t *testing.T, args ...string) e2etest.Outcome {
	t.Helper()
	if testing.Verbose() {
		t.Log(p.run(t, nil, append([]string{"node", "--color", "never"}, args...)...).Stdout)
	}
	return p.run(t, nil, append([]string{"node", "-o", "json"}, args...)...)
}

func (p program) pleg(t *testing.T, args ...string) e2etest.Outcome {
	t.Helper()
	return p.run(t, nil, append([]string{"pleg", "-o", "json"}, args...)...)
}

// A finding is what kdiag must report of a fault: the causes, roots first, and of the first its severity, a part of the
// command of one of its next steps, and a culprit.
type finding struct {
	severity checks.Severity
	step     string
	culprit  func(checks.Subject) bool
	codes    []string
}

// found checks a finding against the answers of kdiag node and kdiag pleg, and runs the steps that only read between
// the two.
func (p program) found(t *testing.T, f finding, args ...string) checks.Cause {
	t.Helper()
	c := p.seen(t, f, args...)
	f.check(t, p.pleg(t, args...))
	return c
}

// seen checks a finding against the answer of kdiag node, and runs the steps that only read.
func (p program) seen(t *testing.T, f finding, args ...string) checks.Cause {
	t.Helper()
	o := p.node(t, args...)
	c := f.check(t, o)
	p.steps().Check(t, slices.DeleteFunc(o.Report(t).Causes, func(c checks.Cause) bool {
		return !slices.Contains(f.codes, c.Code)
	})...)
	return c
}

// steps runs next steps where kdiag runs.
func (p program) steps() e2etest.Steps {
	return e2etest.Here(p.path, p.inside, "node", "-o", "json", "--runtime-endpoint", p.endpoint)
}

func (f finding) check(t *testing.T, o e2etest.Outcome) checks.Cause {
	t.Helper()
	c := names(t, o, f.codes...)
	f.of(t, c)
	return c
}

// of checks what a finding has beside the codes.
func (f finding) of(t *testing.T, c checks.Cause) {
	t.Helper()
	if c.Severity != f.severity {
		t.Errorf("%s is %s, want %s", c.Code, c.Severity, f.severity)
	}
	if !slices.ContainsFunc(c.NextSteps, func(s checks.NextStep) bool { return strings.Contains(s.Command, f.step) }) {
		t.Errorf("%s advises %+v, want %q", c.Code, c.NextSteps, f.step)
	}
	culprits := c.Related
	if c.Subject != nil {
		culprits = append([]checks.Subject{*c.Subject}, culprits...)
	}
	if f.culprit != nil && !slices.ContainsFunc(culprits, f.culprit) {
		t.Errorf("%s names %+v", c.Code, culprits)
	}
}

// process is the culprit with a process id.
func process(pid int) func(checks.Subject) bool {
	return func(s checks.Subject) bool { return s.ID == strconv.Itoa(pid) }
}

// filesystem is the culprit that is mounted at a place.
func filesystem(point string) func(checks.Subject) bool {
	return func(s checks.Subject) bool { return s.Kind == "Filesystem" && s.Name == point }
}

// names checks the codes, roots first, and that no other is there which is about this runtime. Causes that other tests
// make real on the machine are left out. It returns the first of them.
func names(t *testing.T, o e2etest.Outcome, want ...string) checks.Cause {
	t.Helper()
	r := o.Report(t)
	e2etest.Record(t, r, append(want, "none")[0])
	var got []string
	for _, code := range e2etest.Codes(r) {
		// A busy machine may be slow.
		if slices.Contains(want, code) ||
			!e2etest.OfTheMachine(code) && code != "RuntimeSlow" && code != "RelistOverloaded" {
			got = append(got, code)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("causes (-want +got):\n%s%s\n%s", diff, o.Stdout, o.Stderr)
	}
	if len(want) == 0 {
		return checks.Cause{}
	}
	if wantExit := e2etest.ExitOf(r.Status); o.Code != wantExit {
		t.Errorf("exit code %d with status %s, want %d", o.Code, r.Status, wantExit)
	}
	c := r.Causes[slices.Index(e2etest.Codes(r), want[0])]
	if c.CausedBy != "" && e2etest.OfThisRuntime(c.CausedBy) {
		t.Errorf("%s is caused by %s, want a root", c.Code, c.CausedBy)
	}
	return c
}

// status returns what one check found.
func status(t *testing.T, o e2etest.Outcome, id string) checks.Result {
	t.Helper()
	r := o.Report(t)
	i := slices.IndexFunc(r.Checks, func(c checks.Result) bool { return c.ID == id })
	if i < 0 {
		t.Fatalf("there is no check %s", id)
	}
	return r.Checks[i]
}

// TestEndToEndNodeRuntime breaks a real containerd, and what is around it, in one way after the other.
func TestEndToEndNodeRuntime(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{Network: true, RootSize: 64 << 20})
	p := program{path: e2etest.Program(t), endpoint: c.Endpoint()}
	e2etest.RunPods(t, c, nodebox.Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})

	t.Run("healthy", func(t *testing.T) {
		got := p.node(t)
		names(t, got)
		asked := []string{
			"runtime.connect", "runtime.version", "runtime.status", "runtime.network", "runtime.lists",
			"runtime.inspect",
		}
		seen := []string{"host.memory", "host.clock", "host.mounts", "host.writes", "host.tasks", "host.cgroups"}
		for _, c := range got.Report(t).Checks {
			if c.Status != checks.StatusOK && slices.Contains(asked, c.ID) ||
				c.Status == checks.StatusUnknown && slices.Contains(seen, c.ID) {
				t.Errorf("%s is %s: %s", c.ID, c.Status, c.Summary)
			}
		}
		names(t, p.pleg(t))
	})

	t.Run("not root", func(t *testing.T) {
		e2etest.Must(t, os.Chmod(c.Dir(), 0o755))
		e2etest.Must(t, os.Chmod(c.Socket(), 0o600))
		defer func() { e2etest.Must(t, os.Chmod(c.Socket(), 0o660)) }()
		nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		for _, command := range []string{"node", "pleg"} {
			got := p.run(t, nobody, command, "-o", "json")
			r := got.Report(t)
			if !got.CouldNotTell(t) || !strings.Contains(strings.Join(r.Problems, "\n"), "run with sudo") {
				t.Errorf("%s: status %s, exit code %d, problems %q; want unknown, 2 and the advice to use sudo",
					command, r.Status, got.Code, r.Problems)
			}
		}
	})

	t.Run("no network configuration", func(t *testing.T) {
		dir := filepath.Join(c.Dir(), "cni", "net.d")
		e2etest.Must(t, os.Rename(dir, dir+".away"))
		e2etest.Must(t, os.Mkdir(dir, 0o755))
		e2etest.Must(t, c.Restart(t.Context()))
		p.seen(t, finding{checks.Critical, "ls -l " + dir, nil, []string{"NetworkNotReady"}})
		e2etest.Must(t, os.Remove(dir))
		e2etest.Must(t, os.Rename(dir+".away", dir))
	})

	t.Run("restarted", func(t *testing.T) {
		for range 4 {
			e2etest.Must(t, c.Restart(t.Context()))
		}
		names(t, p.node(t))
	})

	t.Run("full", func(t *testing.T) { brokenRoot(t, c, p) })
	t.Run("read-only", func(t *testing.T) {
		p, root := p, filepath.Join(c.Dir(), "root") // containerd itself goes on writing
		p.inside = inMounts("mount -o remount,bind,ro " + root)
		step := "mount -o remount,rw " + root
		p.steps().Repair(t, p.seen(t, finding{checks.Critical, step, filesystem(root), []string{"IOStall"}}), step)
	})
	t.Run("no files", func(t *testing.T) { filesAtLimit(t, c, p) })
	t.Run("no processes", func(t *testing.T) { runtimePIDsAtLimit(t, c, p) })

	t.Run("frozen", func(t *testing.T) {
		e2etest.Must(t, c.Pause(t.Context()))
		defer func() { e2etest.Must(t, c.Resume()) }()
		step := fmt.Sprintf("kill -CONT %d", c.PID())
		hung := finding{checks.Critical, step, process(c.PID()), []string{"RuntimeHung"}}
		p.steps().Repair(t, p.found(t, hung, "--rpc-timeout", "1s"), step)
	})

	t.Run("stopped", func(t *testing.T) {
		e2etest.Must(t, c.Stop(t.Context()))
		p.found(t, finding{checks.Critical, "ss -xlp", nil, []string{"RuntimeDown"}})
	})
}

// brokenRoot takes the last byte, and then the last inode, of the file system of the runtime's root folder.
func brokenRoot(t *testing.T, c *nodebox.Containerd, p program) {
	root := filepath.Join(c.Dir(), "root")
	filler := filepath.Join(root, "filler")
	f, err := os.Create(filler)
	e2etest.Must(t, err)
	for block := 1 << 20; block >= 4<<10; block /= 4 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, block))
		}
	}
	e2etest.Must(t, f.Close())
	p.found(t, finding{checks.Critical, "du -x", filesystem(root), []string{"DiskFull"}})
	e2etest.Must(t, os.Remove(filler))

	var fs unix.Statfs_t
	e2etest.Must(t, unix.Statfs(root, &fs))
	e2etest.Must(t, unix.Mount("", root, "", unix.MS_REMOUNT, fmt.Sprintf("nr_inodes=%d", fs.Files-fs.Ffree)))
	p.found(t, finding{checks.Critical, "inodes", filesystem(root), []string{"InodesExhausted"}})
	e2etest.Must(t, unix.Mount("", root, "", unix.MS_REMOUNT, fmt.Sprintf("nr_inodes=%d", fs.Files)))
}

// filesAtLimit sets containerd's limit of open files to what it has open.
func filesAtLimit(t *testing.T, c *nodebox.Containerd, p program) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.PID()))
	e2etest.Must(t, err)
	var old unix.Rlimit
	e2etest.Must(t, unix.Prlimit(c.PID(), unix.RLIMIT_NOFILE, nil, &old))
	e2etest.Must(t, unix.Prlimit(c.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open)), Max: old.Max}, nil))
	defer func() { e2etest.Must(t, unix.Prlimit(c.PID(), unix.RLIMIT_NOFILE, &old, nil)) }()
	got := p.node(t, "--rpc-timeout", "2s")
	r := got.Report(t)
	i := slices.Index(e2etest.Codes(r), "FilesExhausted")
	if i < 0 {
		t.Fatalf("causes %v\n%s", e2etest.Codes(r), got.Stdout)
	}
	step := fmt.Sprintf("prlimit --pid %d --nofile=%d", c.PID(), old.Max)
	finding{checks.Critical, step, process(c.PID()), nil}.of(t, r.Causes[i])
	p.steps().Check(t, r.Causes[i])
	p.steps().Repair(t, r.Causes[i], step)
}

// crowd starts a shell in a control group of the controller pids, with so many children that sleep. They end with the
// test.
func crowd(t *testing.T, dir string, children int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/busybox", "sh", "-c", fmt.Sprintf("echo $$ > %s/cgroup.procs; i=0; "+
		"while [ $i -lt %d ]; do busybox sleep 1000 & i=$((i+1)); done; echo up; wait", dir, children))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	awaitUp(t, cmd)
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd
}

// awaitUp starts a command and waits until it prints that it is up.
func awaitUp(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	e2etest.Must(t, err)
	e2etest.Must(t, cmd.Start())
	_, err = io.ReadFull(stdout, make([]byte, len("up\n")))
	e2etest.Must(t, err)
}

// runtimePIDsAtLimit gives containerd a control group that others have all but filled. The last threads are left to it:
// it ends when it needs one more and gets none.
func runtimePIDsAtLimit(t *testing.T, c *nodebox.Containerd, p program) {
	const top = "/sys/fs/cgroup/pids"
	group := "/" + filepath.Base(c.Dir()) + "/daemon" // the box removes its own
	dir := filepath.Join(top, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal("needs a hierarchy of version 1 with the pids controller")
	}
	t.Cleanup(func() { eventually(t, "the control group is gone", func() bool { return os.Remove(dir) == nil }) })
	set := func(dir, name, value string) {
		e2etest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0))
	}
	set(dir, "cgroup.procs", strconv.Itoa(c.PID()))
	defer set(top, "cgroup.procs", strconv.Itoa(c.PID()))
	crowd(t, dir, 180)
	set(dir, "pids.max", "205") // of which the sleepers, the shell and containerd's own threads are over nine tenths
	step := "echo max > '" + dir + "/pids.max'"
	full := p.found(t, finding{
		checks.Critical, step, func(s checks.Subject) bool { return s.Name == group }, []string{"PIDsExhausted"},
	})
	p.steps().Repair(t, full, step)
}
