package nodecmd_test

import (
	"bytes"
	"context"
	"fmt"
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
	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/nodebox"
)

// A program is kdiag as it is installed, asking one runtime.
type program struct {
	path, endpoint string
	inside         []string // a command that runs it elsewhere
}

// TestMain becomes the process that waitInKernel starts, where vforkEnv is set.
func TestMain(m *testing.M) {
	if os.Getenv(vforkEnv) != "" {
		vforkUntilStdinEnds()
	}
	os.Exit(m.Run())
}

// run runs a command of kdiag's for a person: a process of its own, in the namespaces of the calling thread. One that has not ended
// well after its --timeout fails the test.
func (p program) run(t *testing.T, as *syscall.SysProcAttr, args ...string) apptest.Outcome {
	t.Helper()
	const timeout, grace = 20 * time.Second, time.Minute // the grace is for a busy machine
	args = append(args, "--runtime-endpoint", p.endpoint, "--timeout", timeout.String())
	ctx, cancel := context.WithTimeout(t.Context(), timeout+grace)
	defer cancel()
	argv := slices.Concat(p.inside, []string{p.path}, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = as
	_ = cmd.Run() // its exit code is the test's affair
	if ctx.Err() != nil {
		t.Fatalf("kdiag %s has not ended %v after its time was up", strings.Join(args, " "), grace)
	}
	return apptest.Outcome{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// node asks for everything, as JSON, and shows the test's log what a person would read.
func (p program) node(t *testing.T, args ...string) apptest.Outcome {
	t.Helper()
	if testing.Verbose() {
		t.Log(p.run(t, nil, append([]string{"node", "--color", "never"}, args...)...).Stdout)
	}
	return p.run(t, nil, append([]string{"node", "-o", "json"}, args...)...)
}

func (p program) pleg(t *testing.T, args ...string) apptest.Outcome {
	t.Helper()
	return p.run(t, nil, append([]string{"pleg", "-o", "json"}, args...)...)
}

// names wants the codes, roots first, and none besides that tells of this runtime. What other tests make real on the machine is
// said as well, and rightly. It returns the first cause of them.
func names(t *testing.T, o apptest.Outcome, want ...string) checks.Cause {
	t.Helper()
	r := o.Report(t)
	var got []string
	for _, code := range apptest.Codes(r) {
		// How fast a busy machine is says nothing either.
		if slices.Contains(want, code) || !apptest.OfTheMachine(code) && code != "RuntimeSlow" && code != "RelistOverloaded" {
			got = append(got, code)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("causes (-want +got):\n%s%s\n%s", diff, o.Stdout, o.Stderr)
	}
	if len(want) == 0 {
		return checks.Cause{}
	}
	wantExit := map[checks.Verdict]int{checks.Healthy: 0, checks.Degraded: 0, checks.Unhealthy: 1, checks.Unknown: 2}[r.Status]
	if o.Code != wantExit {
		t.Errorf("exit code %d with status %s, want %d", o.Code, r.Status, wantExit)
	}
	c := r.Causes[slices.Index(apptest.Codes(r), want[0])]
	if c.CausedBy != "" {
		t.Errorf("%s is caused by %s, want a root", c.Code, c.CausedBy)
	}
	return c
}

// culprits returns all whom a cause names.
func culprits(c checks.Cause) []checks.Subject {
	if c.Subject == nil {
		return nil
	}
	return append([]checks.Subject{*c.Subject}, c.Related...)
}

// advises wants a severity and, among the next steps, a command.
func advises(t *testing.T, c checks.Cause, severity checks.Severity, command string) {
	t.Helper()
	if c.Severity != severity {
		t.Errorf("%s is %s, want %s", c.Code, c.Severity, severity)
	}
	if !slices.ContainsFunc(c.NextSteps, func(s checks.NextStep) bool { return strings.Contains(s.Command, command) }) {
		t.Errorf("%s advises %+v, want %q", c.Code, c.NextSteps, command)
	}
}

// status returns what one check found.
func status(t *testing.T, o apptest.Outcome, id string) checks.Result {
	t.Helper()
	r := o.Report(t)
	i := slices.IndexFunc(r.Checks, func(c checks.Result) bool { return c.ID == id })
	if i < 0 {
		t.Fatalf("there is no check %s", id)
	}
	return r.Checks[i]
}

// TestEndToEndNodeRuntime breaks a real containerd, and what is around it, in one way after the other, and asks kdiag node.
func TestEndToEndNodeRuntime(t *testing.T) {
	c := apptest.StartContainerd(t, nodebox.Options{Network: true, RootSize: 64 << 20})
	p := program{path: apptest.BuildKdiag(t), endpoint: c.Endpoint()}
	apptest.RunPods(t, c, nodebox.Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})

	t.Run("healthy", func(t *testing.T) {
		got := p.node(t)
		names(t, got)
		for _, c := range got.Report(t).Checks {
			asked := slices.Contains(
				[]string{
					"runtime.connect",
					"runtime.version",
					"runtime.status",
					"runtime.network",
					"runtime.lists",
					"runtime.inspect",
				},
				c.ID,
			)
			seen := slices.Contains(
				[]string{"host.memory", "host.clock", "host.mounts", "host.writes", "host.tasks", "host.cgroups"},
				c.ID,
			)
			if c.Status != checks.StatusOK && asked || c.Status == checks.StatusUnknown && seen {
				t.Errorf("%s is %s: %s", c.ID, c.Status, c.Summary)
			}
		}
		names(t, p.pleg(t))
	})

	t.Run("not root", func(t *testing.T) {
		apptest.Must(t, os.Chmod(c.Dir(), 0o755))
		apptest.Must(t, os.Chmod(c.Socket(), 0o600))
		defer func() { apptest.Must(t, os.Chmod(c.Socket(), 0o660)) }()
		nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		got := p.run(t, nobody, "node", "-o", "json")
		r := got.Report(t)
		if !got.CouldNotTell(t) || !strings.Contains(strings.Join(r.Problems, "\n"), "root") {
			t.Errorf("status %s, exit code %d, problems %q; want unknown, 2 and the advice to be root", r.Status,
				got.Code, r.Problems)
		}
	})

	t.Run("no network configuration", func(t *testing.T) {
		dir := filepath.Join(c.Dir(), "cni", "net.d")
		apptest.Must(t, os.Rename(dir, dir+".away"))
		apptest.Must(t, os.Mkdir(dir, 0o755))
		apptest.Must(t, c.Restart(t.Context()))
		cause := names(t, p.node(t), "NetworkNotReady")
		advises(t, cause, checks.Critical, "/etc/cni/net.d")
		apptest.Must(t, os.Remove(dir))
		apptest.Must(t, os.Rename(dir+".away", dir))
	})

	t.Run("restarted", func(t *testing.T) {
		for range 4 {
			apptest.Must(t, c.Restart(t.Context()))
		}
		names(t, p.node(t))
	})

	t.Run("full", func(t *testing.T) { brokenRoot(t, c, p) })
	t.Run("no files", func(t *testing.T) { filesAtLimit(t, c, p) })
	t.Run("no processes", func(t *testing.T) { runtimePIDsAtLimit(t, c, p) })

	t.Run("frozen", func(t *testing.T) {
		apptest.Must(t, c.Pause(t.Context()))
		defer func() { apptest.Must(t, c.Resume()) }()
		for _, got := range []apptest.Outcome{p.node(t, "--rpc-timeout", "1s"), p.pleg(t, "--rpc-timeout", "1s")} {
			cause := names(t, got, "RuntimeHung")
			advises(t, cause, checks.Critical, fmt.Sprintf("kill -CONT %d", c.PID()))
			if cause.Subject == nil || cause.Subject.ID != strconv.Itoa(c.PID()) {
				t.Errorf("subject %+v, want process %d", cause.Subject, c.PID())
			}
		}
	})

	t.Run("stopped", func(t *testing.T) {
		apptest.Must(t, c.Stop(t.Context()))
		cause := names(t, p.node(t), "RuntimeDown")
		advises(t, cause, checks.Critical, "ss -xlp")
		names(t, p.pleg(t), "RuntimeDown")
	})
}

// brokenRoot takes the last byte, and then the last inode, of the file system of the runtime's root folder.
func brokenRoot(t *testing.T, c *nodebox.Containerd, p program) {
	root := filepath.Join(c.Dir(), "root")
	mine := func(s checks.Subject) bool { return s.Kind == "Filesystem" && s.Name == root }
	filler := filepath.Join(root, "filler")
	f, err := os.Create(filler)
	apptest.Must(t, err)
	for block := 1 << 20; block >= 4<<10; block /= 4 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, block))
		}
	}
	apptest.Must(t, f.Close())
	for _, got := range []apptest.Outcome{p.node(t), p.pleg(t)} {
		cause := names(t, got, "DiskFull")
		advises(t, cause, checks.Critical, "du -x")
		if !slices.ContainsFunc(culprits(cause), mine) {
			t.Errorf("culprits %+v, want %s", culprits(cause), root)
		}
	}
	apptest.Must(t, os.Remove(filler))

	var fs unix.Statfs_t
	apptest.Must(t, unix.Statfs(root, &fs))
	apptest.Must(t, unix.Mount("", root, "", unix.MS_REMOUNT, fmt.Sprintf("nr_inodes=%d", fs.Files-fs.Ffree)))
	for _, got := range []apptest.Outcome{p.node(t), p.pleg(t)} {
		cause := names(t, got, "InodesExhausted")
		advises(t, cause, checks.Critical, "inodes")
		if !slices.ContainsFunc(culprits(cause), mine) {
			t.Errorf("culprits %+v, want %s", culprits(cause), root)
		}
	}
	apptest.Must(t, unix.Mount("", root, "", unix.MS_REMOUNT, fmt.Sprintf("nr_inodes=%d", fs.Files)))
}

// filesAtLimit sets containerd's limit of open files to what it has open.
func filesAtLimit(t *testing.T, c *nodebox.Containerd, p program) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.PID()))
	apptest.Must(t, err)
	var old unix.Rlimit
	apptest.Must(t, unix.Prlimit(c.PID(), unix.RLIMIT_NOFILE, nil, &old))
	apptest.Must(t, unix.Prlimit(c.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open)), Max: old.Max}, nil))
	defer func() { apptest.Must(t, unix.Prlimit(c.PID(), unix.RLIMIT_NOFILE, &old, nil)) }()
	got := p.node(t, "--rpc-timeout", "2s")
	r := got.Report(t)
	i := slices.Index(apptest.Codes(r), "FilesExhausted")
	if i < 0 {
		t.Fatalf("causes %v\n%s", apptest.Codes(r), got.Stdout)
	}
	cause := r.Causes[i]
	advises(t, cause, checks.Critical, fmt.Sprintf("prlimit --pid %d --nofile=%d", c.PID(), old.Max))
	if !slices.ContainsFunc(culprits(cause), func(s checks.Subject) bool { return s.ID == strconv.Itoa(c.PID()) }) {
		t.Errorf("culprits %+v, want process %d", culprits(cause), c.PID())
	}
}

// runtimePIDsAtLimit gives containerd a control group that others have all but filled. The last threads are left to it: it ends
// itself when it needs one more and gets none.
func runtimePIDsAtLimit(t *testing.T, c *nodebox.Containerd, p program) {
	const top = "/sys/fs/cgroup/pids"
	group := "/" + filepath.Base(c.Dir()) + "/daemon" // the box removes its own
	dir := filepath.Join(top, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		nodebox.Need(t, "needs a hierarchy of version 1 with the pids controller")
	}
	set := func(dir, name, value string) {
		apptest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0))
	}
	set(dir, "cgroup.procs", strconv.Itoa(c.PID()))
	defer func() {
		set(top, "cgroup.procs", strconv.Itoa(c.PID()))
		eventually(t, "the control group is gone", func() bool { return os.Remove(dir) == nil })
	}()
	fill := exec.Command("/bin/sh", "-c",
		"echo $$ > "+dir+"/cgroup.procs; for i in $(seq 180); do sleep 1000 & done; echo; wait")
	fill.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	filled, err := fill.StdoutPipe()
	apptest.Must(t, err)
	apptest.Must(t, fill.Start())
	defer func() {
		apptest.Must(t, syscall.Kill(-fill.Process.Pid, syscall.SIGKILL))
		_ = fill.Wait() // killed
	}()
	_, err = filled.Read(make([]byte, 1))
	apptest.Must(t, err)
	set(dir, "pids.max", "205") // of which the sleepers, the shell and containerd's own threads are over nine tenths
	for _, got := range []apptest.Outcome{p.node(t), p.pleg(t)} {
		cause := names(t, got, "PIDsExhausted")
		advises(t, cause, checks.Critical, "echo max > '"+dir+"/pids.max'")
		if !slices.ContainsFunc(culprits(cause), func(s checks.Subject) bool { return s.Name == group }) {
			t.Errorf("culprits %+v, want %s", culprits(cause), dir)
		}
	}
}
