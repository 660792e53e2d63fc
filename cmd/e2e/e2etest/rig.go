//go:build e2e

package e2etest

import (
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

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// hangingOCI is an OCI runtime of another name, that hangs while there is a file hang-VERB beside it. It sleeps for
// long: whenever it starts a sleep it is in uninterruptible sleep itself (vfork), and kdiag knows such a process by its
// name alone.
const hangingOCI = `#!/bin/sh
for a in "$@"; do while [ -e %[1]s/hang-$a ]; do sleep 2; done; done
exec runc "$@"
`

// A Rig is a private containerd with two running pods, and kdiag that is asked about it. Their control groups are named
// as a kubelet names them.
type Rig struct {
	*nodebox.Containerd
	Place
	Folder string // of the OCI runtime
	Pods   []nodebox.Pod
	Group  string // the control group of the second pod's container
	execs  int
}

// StartRig starts a containerd with a stub network, and an OCI runtime that can be made to hang.
func StartRig(t *testing.T, opts nodebox.Options) *Rig {
	t.Helper()
	r := &Rig{}
	var err error
	r.Folder, err = os.MkdirTemp("/tmp", "kdiag-oci-")
	Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(r.Folder) })
	opts.Network, opts.OCI = true, filepath.Join(r.Folder, "fastrun")
	Must(t, os.WriteFile(opts.OCI, fmt.Appendf(nil, hangingOCI, r.Folder), 0o755))
	r.Containerd = nodebox.Start(t, opts)
	r.Place = Place{
		Program: Program(t), Args: []string{"--runtime-endpoint", r.Endpoint()}, Limits: Patient, Acts: r.acts(),
	}
	r.Pods, err = r.Run(t.Context(), nodebox.Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})
	Must(t, err)
	second := r.Pods[1]
	r.Group = fmt.Sprintf("%s/pod%s/%s", r.parent(), second.Config.Metadata.Uid, second.Containers[0].ID)
	r.Place.Shell = r.Shell
	r.Values = []string{
		"${DIR}", r.Dir(), "${BASE}", "/" + filepath.Base(r.Dir()), "${FOLDER}", r.Folder, "${GROUP}", r.Group,
		"${SOCKET}", r.Socket(), "${UID}", second.Config.Metadata.Uid,
	}
	return r
}

func (r *Rig) parent() string { return "/" + filepath.Base(r.Dir()) + "/kubepods" }

// Run creates pods.
func (r *Rig) Run(ctx context.Context, pods nodebox.Pods) ([]nodebox.Pod, error) {
	pods.CgroupParent = r.parent()
	return nodebox.RunPods(ctx, r.Endpoint(), pods)
}

// RunBehind creates one pod in the background, until the test ends.
func (r *Rig) RunBehind(t *testing.T, pod nodebox.Pods) {
	t.Helper()
	pod.Count, pod.Containers, pod.State = 1, 1, crictl.ContainerRunning
	Behind(t, func(ctx context.Context) { _, _ = r.Run(ctx, pod) }) // it hangs
}

// Behind runs a function in the background, and interrupts it when the test ends.
func Behind(t *testing.T, run func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// Ctr runs ctr in the namespace of the pods.
func (r *Rig) Ctr(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"--address", r.Socket(), "--namespace", "k8s.io"}, args...)
	if out, err := exec.Command("ctr", args...).CombinedOutput(); err != nil {
		t.Fatalf("ctr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Exec runs a command of a shell in the second pod's container, and does not wait for it.
func (r *Rig) Exec(t *testing.T, command string) {
	t.Helper()
	r.execs++
	r.Ctr(t, "tasks", "exec", "--detach", "--exec-id", fmt.Sprint("exec", r.execs), r.Pods[1].Containers[0].ID,
		"/bin/busybox", "sh", "-c", command)
}

// Hang makes a verb of the OCI runtime hang until the test ends.
func (r *Rig) Hang(t *testing.T, verb string) {
	t.Helper()
	file := filepath.Join(r.Folder, "hang-"+verb)
	Must(t, os.WriteFile(file, nil, 0o600))
	t.Cleanup(func() { _ = os.Remove(file) })
}

// Shell makes a fault with a command of a shell that has the daemon's pid as $pid and that of the second pod's shim as
// $shim, and undoes it with another. The daemon is the culprit.
func (r *Rig) Shell(make, undo string) Maker {
	return func(t *testing.T, at *Place) {
		at.Culprit = strconv.Itoa(r.PID())
		shim := r.SecondShim(t)
		known := func() string { return fmt.Sprintf("set -e; pid=%d shim=%s; ", r.PID(), shim) }
		t.Cleanup(func() { Sh(t, known()+undo) }) // the daemon may be another one by then
		Sh(t, known()+make)
	}
}

// SecondShim returns the process id of the second pod's shim.
func (r *Rig) SecondShim(t *testing.T) string {
	t.Helper()
	pid, err := r.Shim(r.Pods[1].ID)
	Must(t, err)
	return strconv.Itoa(pid)
}

// Cgroup returns where a control group lies in the hierarchy of a controller, version 1.
func Cgroup(t *testing.T, controller, group string) string {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", controller, group)
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("needs a hierarchy of version 1 with the controller %s: %v", controller, err)
	}
	return dir
}

// MakeCgroup makes a control group that the test removes.
func MakeCgroup(t *testing.T, controller, group string) string {
	t.Helper()
	dir := filepath.Join(Cgroup(t, controller, "/"), group)
	Must(t, os.MkdirAll(dir, 0o755))
	t.Cleanup(func() { Eventually(t, "the control group is gone", func() bool { return unix.Rmdir(dir) == nil }) })
	return dir
}

// Enter puts a process with all its threads into a control group, and back into the topmost when the test ends.
func Enter(t *testing.T, dir string, pid int) {
	t.Helper()
	enter := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	}
	Must(t, enter(dir))
	top := strings.Join(strings.Split(dir, "/")[:5], "/")
	t.Cleanup(func() { _ = enter(top) }) // it may have ended
}

// Crowd starts a shell in the control group dir of the controller pids, with so many children that sleep.
func Crowd(t *testing.T, dir string, children int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/busybox", "sh", "-c", fmt.Sprintf("echo $$ > %s/cgroup.procs; i=0; "+
		"while [ $i -lt %d ]; do busybox sleep 1000 & i=$((i+1)); done; echo up; wait", dir, children))
	StartUntilUp(t, cmd)
	return cmd
}

// StartKubelet starts a process with a kubelet's name and arguments, which reads a line of stdin and then runs a
// script.
func StartKubelet(t *testing.T, script string, args ...string) (cmd *exec.Cmd, stdin io.Writer) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubelet")
	Sh(t, "cp /bin/busybox "+program)
	cmd = exec.Command(program, append([]string{"-c", "echo up; read x; " + script, "sh"}, args...)...)
	cmd.Args[0] = "sh" // the applet
	stdin, err := cmd.StdinPipe()
	Must(t, err)
	StartUntilUp(t, cmd)
	return cmd, stdin
}

// InMounts returns the command that runs another in a mount namespace, after some commands of a shell.
func InMounts(commands string) []string {
	return []string{"unshare", "-m", "--propagation", "private", "/bin/sh", "-c", commands + ` && exec "$@"`, "sh"}
}

// StartUntilUp starts a command, waits until it prints that it is up, and kills it and its group when the test ends.
func StartUntilUp(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	_, err = io.ReadFull(stdout, make([]byte, len("up\n")))
	Must(t, err)
}

// Sh runs a command of a shell.
func Sh(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// ThreadHas reports whether a file in /proc of a thread of a process has these words: stat has ") D " in
// uninterruptible sleep.
func ThreadHas(pid int, file, words string) bool {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, file))
	return slices.ContainsFunc(names, func(name string) bool {
		text, _ := os.ReadFile(name)
		return strings.Contains(string(text), words)
	})
}

// ProbesIn counts kdiag's children that wait in a mount. The first thread of one may be dead already.
func ProbesIn(point string) int {
	n := 0
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		threads, _ := filepath.Glob(dir + "/task/*")
		if slices.ContainsFunc(threads, func(thread string) bool {
			args, _ := os.ReadFile(thread + "/cmdline")
			name, _ := os.ReadFile(thread + "/comm")
			return strings.Contains(string(args), "\x00"+host.ChildArgument+"\x00") &&
				strings.Contains(string(args), point) && strings.HasPrefix(string(name), "kdiag-")
		}) {
			n++
		}
	}
	return n
}
