//go:build e2e

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// hangingOCI is an OCI runtime of another name, that hangs while there is a file hang-VERB beside it.
const hangingOCI = `#!/bin/sh
for a in "$@"; do while [ -e %[1]s/hang-$a ]; do sleep 1; done; done
exec runc "$@"
`

// A podsRig is a containerd whose OCI runtime and CNI plugins can be made to hang, with two pods, and another one
// beside it.
type podsRig struct {
	program
	c, other     *nodebox.Containerd
	dir          string
	pods, others []nodebox.Pod
}

func (r *podsRig) hang(t *testing.T, verb string) (release func()) {
	t.Helper()
	file := filepath.Join(r.dir, "hang-"+verb)
	e2etest.Must(t, os.WriteFile(file, nil, 0o600))
	return func() { _ = os.Remove(file) }
}

// start makes a pod in the background, for as long as the test runs.
func (r *podsRig) start(t *testing.T, p nodebox.Pods) {
	t.Helper()
	p.Count, p.Containers, p.State = 1, 1, crictl.ContainerRunning
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.c.RunPods(ctx, p) // it hangs
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// awaitProcess waits until a process with such arguments has run for so long.
func awaitProcess(t *testing.T, age time.Duration, words ...string) {
	t.Helper()
	for {
		out, err := exec.Command("ps", "-eo", "etimes=,args=").Output()
		e2etest.Must(t, err)
		for line := range strings.Lines(string(out)) {
			var seconds int
			_, _ = fmt.Sscan(line, &seconds)
			missing := func(word string) bool { return !strings.Contains(line, word) }
			if time.Duration(seconds)*time.Second > age && !slices.ContainsFunc(words, missing) {
				return
			}
		}
		time.Sleep(time.Second)
	}
}

// newPodsRig starts a containerd without pods.
func newPodsRig(t *testing.T) *podsRig {
	dir, err := os.MkdirTemp("/tmp", "kdiag-oci-")
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	oci := filepath.Join(dir, "fastrun")
	e2etest.Must(t, os.WriteFile(oci, fmt.Appendf(nil, hangingOCI, dir), 0o755))
	r := &podsRig{c: e2etest.StartContainerd(t, nodebox.Options{Network: true, OCI: oci}), dir: dir}
	r.program = program{path: e2etest.Program(t), endpoint: r.c.Endpoint()}
	return r
}

// TestEndToEndNodePods stops pods from starting and stopping, while PLEG is well, in one way after the other.
func TestEndToEndNodePods(t *testing.T) {
	r := newPodsRig(t)
	r.other = e2etest.StartContainerd(t, nodebox.Options{Network: true})
	two := nodebox.Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning}
	r.pods, r.others = e2etest.RunPods(t, r.c, two), e2etest.RunPods(t, r.other, two)

	release := r.hang(t, "kill") // for long: it is looked at in the end
	defer release()
	go func() {
		_ = exec.Command("ctr", "-a", r.c.Socket(), "-n", "k8s.io", "t", "kill", r.pods[0].Containers[0].ID).Run()
	}()

	t.Run("CNI plugin missing", r.testPluginMissing)
	t.Run("loopback plugin missing", func(t *testing.T) { r.testNoFile(t, "loopback") })
	t.Run("OCI runtime missing", r.testOCIMissing)
	t.Run("another runtime's shim stopped", r.testOthersShim)
	t.Run("every thread of a shim waits in the kernel", r.testShimAsleep)
	t.Run("sandbox creation hangs", r.testCreateHangs)
	t.Run("CNI plugin of any name hangs", r.testCNIHangs)
	t.Run("running without a process", r.testGone)
	t.Run("container cannot be killed", r.testKillHangs)
	t.Run("two daemons in one folder", func(t *testing.T) { r.testRival(t, false) })
	t.Run("two daemons on one socket", func(t *testing.T) { r.testRival(t, true) })
	t.Run("folder in the socket's place", r.testFolder)
}

func (r *podsRig) testPluginMissing(t *testing.T) { r.testNoFile(t, "bridge") }

func (r *podsRig) testNoFile(t *testing.T, plugin string) {
	file := filepath.Join(r.c.Dir(), "cni/bin", plugin)
	e2etest.Must(t, os.Rename(file, file+".away"))
	defer func() { e2etest.Must(t, os.Rename(file+".away", file)) }()
	f := finding{checks.Critical, "ls -l " + r.c.Dir(), func(s checks.Subject) bool {
		return s.ID == filepath.Dir(file)
	}, nil}
	for _, o := range []e2etest.Outcome{r.node(t), r.pleg(t)} {
		c := r.first(t, o, "NetworkNotReady")
		f.of(t, c)
		if !strings.Contains(c.Summary, plugin) || !strings.HasPrefix(strings.Join(c.Effect, ""), "PLEG is fine") {
			t.Errorf("%s; effect %q", c.Summary, c.Effect)
		}
		r.steps().Check(t, c)
	}
}

// first returns the cause that a report must have; what other tests make real on this machine is passed over.
func (r *podsRig) first(t *testing.T, o e2etest.Outcome, code string) checks.Cause {
	t.Helper()
	report := o.Report(t)
	i := slices.Index(e2etest.Codes(report), code)
	if i < 0 {
		t.Fatalf("causes %v, want %s\n%s", e2etest.Codes(report), code, o.Stdout)
	}
	return report.Causes[i]
}

func (r *podsRig) testOCIMissing(t *testing.T) {
	file := filepath.Join(r.dir, "fastrun")
	e2etest.Must(t, os.Rename(file, file+".away"))
	defer func() { e2etest.Must(t, os.Rename(file+".away", file)) }()
	c := r.first(t, r.pleg(t), "RuntimeNotReady")
	r.steps().Check(t, c)
	if c.Severity != checks.Critical || !strings.Contains(c.Summary, "is missing") {
		t.Errorf("%s: %s", c.Severity, c.Summary)
	}
}

// testOthersShim stops what belongs to another runtime: a note at most.
func (r *podsRig) testOthersShim(t *testing.T) {
	e2etest.Must(t, r.other.FreezeShim(t.Context(), r.others[0].ID))
	defer func() { e2etest.Must(t, r.other.ThawShim(r.others[0].ID)) }()
	o := r.node(t)
	report := o.Report(t)
	pid, err := r.other.Shim(r.others[0].ID)
	e2etest.Must(t, err)
	for _, c := range report.Causes {
		for _, s := range append(c.Related, *c.Subject) {
			if process(pid)(s) {
				t.Errorf("%s blames another runtime's shim: %s", c.Code, c.Summary)
			}
		}
	}
	if !strings.Contains(strings.Join(report.Notes, "\n"), fmt.Sprintf("(pid %d)", pid)) {
		t.Errorf("notes %q, want the shim %d", report.Notes, pid)
	}
	other := program{path: r.path, endpoint: r.other.Endpoint()}
	c := r.first(t, other.node(t), "ShimStuck")
	finding{checks.Warning, fmt.Sprintf("kill -CONT %d", pid), process(pid), nil}.of(t, c)
	other.steps().Repair(t, c, "kill -CONT")
}

// testShimAsleep freezes a shim alone, which leaves its threads in uninterruptible sleep.
func (r *podsRig) testShimAsleep(t *testing.T) {
	pid, err := r.c.Shim(r.pods[1].ID)
	e2etest.Must(t, err)
	top := cgroupDir(t, "freezer", "/")
	group := filepath.Join(top, filepath.Base(r.dir))
	e2etest.Must(t, os.Mkdir(group, 0o755))
	write := func(dir, file, text string) {
		e2etest.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0))
	}
	write(group, "cgroup.procs", fmt.Sprint(pid))
	write(group, "freezer.state", "FROZEN")
	defer func() {
		write(group, "freezer.state", "THAWED")
		write(top, "cgroup.procs", fmt.Sprint(pid))
		eventually(t, "the control group is gone", func() bool { return os.Remove(group) == nil })
	}()
	c := r.first(t, r.node(t), "ShimStuck")
	f := finding{checks.Warning, fmt.Sprintf("/proc/%d/stack", pid), func(s checks.Subject) bool {
		return process(pid)(s) && s.Pod == r.pods[1].Config.GetMetadata().GetName()
	}, nil}
	f.of(t, c)
	r.steps().Check(t, c)
}

func (r *podsRig) testCreateHangs(t *testing.T) {
	release := r.hang(t, "create")
	defer release()
	r.start(t, nodebox.Pods{Prefix: "slow"})
	awaitProcess(t, facts.StuckWork, r.dir, " create ")
	c := r.first(t, r.pleg(t), "ShimStuck")
	slow := func(s checks.Subject) bool { return s.Pod == "slow-0" && s.Namespace == "box" }
	finding{checks.Warning, "kill -KILL", slow, nil}.of(t, checks.Cause{
		Code: c.Code, Severity: checks.Warning, NextSteps: c.NextSteps, Subject: c.Subject, Related: c.Related,
	})
	if !strings.Contains(strings.Join(c.Effect, "\n"), "PLEG is fine, but box/slow-0 cannot start") {
		t.Errorf("effect %q", c.Effect)
	}
	r.steps().Check(t, c)
}

func (r *podsRig) testCNIHangs(t *testing.T) {
	bin := filepath.Join(r.c.Dir(), "cni/bin")
	e2etest.Must(t, os.Rename(bin+"/bridge", bin+"/zzz"))
	conf := filepath.Join(r.c.Dir(), "cni/net.d/10-stub.conflist")
	e2etest.Must(t, os.WriteFile(conf, []byte(`{"cniVersion":"0.4.0","name":"n","plugins":[{"type":"zzz"}]}`), 0o600))
	e2etest.Must(t, r.c.HangCNI())
	defer func() { e2etest.Must(t, r.c.ReleaseCNI()) }()
	time.Sleep(2 * time.Second) // containerd loads it
	r.start(t, nodebox.Pods{Prefix: "net", PodNetwork: true})
	awaitProcess(t, facts.StuckWork, bin+"/zzz")
	c := r.first(t, r.pleg(t), "CNIHung")
	culprit := func(s checks.Subject) bool { return s.Name == "zzz" && s.Pod == "net-0" }
	finding{c.Severity, "kill -KILL", culprit, nil}.of(t, c)
	r.steps().Check(t, c)
}

// testGone kills a container's process while a tracer holds it: a zombie whose end its shim is not told.
func (r *podsRig) testGone(t *testing.T) {
	awaitProcess(t, facts.ShimSettled, r.pods[1].ID)
	shim, err := r.c.Shim(r.pods[1].ID)
	e2etest.Must(t, err)
	out, err := exec.Command("pgrep", "-x", "-P", fmt.Sprint(shim), "sleep").Output()
	e2etest.Must(t, err)
	var pid int
	_, _ = fmt.Sscan(string(out), &pid)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e2etest.Must(t, unix.PtraceSeize(pid))
	e2etest.Must(t, unix.Kill(pid, unix.SIGKILL))
	eventually(t, "it is a zombie", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.Contains(string(stat), ") Z ")
	})
	c := r.first(t, r.node(t), "ShimStuck")
	gone := func(s checks.Subject) bool { return s.ID == r.pods[1].Containers[0].ID && s.Kind == "Container" }
	finding{c.Severity, "kubectl delete pod", gone, nil}.of(t, c)
	r.steps().Check(t, c)
	var status syscall.WaitStatus
	_, _ = syscall.Wait4(pid, &status, 0, nil)
}

// testKillHangs looks at the kill that has hung since the start.
func (r *podsRig) testKillHangs(t *testing.T) {
	awaitProcess(t, facts.LastingWork, r.dir, " kill ")
	var c checks.Cause
	for _, o := range []e2etest.Outcome{r.node(t), r.pleg(t)} {
		c = r.first(t, o, "ShimStuck")
		name := r.pods[0].Config.GetMetadata().GetName()
		finding{checks.Critical, "kill -KILL", func(s checks.Subject) bool { return s.Pod == name }, nil}.of(t, c)
		want := "PLEG is fine, but box/" + name + " (c0) cannot stop"
		if o.Code != 1 || !strings.Contains(strings.Join(c.Effect, "\n"), want) {
			t.Errorf("exit code %d, effect %q", o.Code, c.Effect)
		}
	}
	r.steps().Check(t, c)
}

// testRival starts a second daemon with the same folder, or, with another one, on the same socket.
func (r *podsRig) testRival(t *testing.T, socket bool) {
	config, err := os.ReadFile(filepath.Join(r.c.Dir(), "config.toml"))
	e2etest.Must(t, err)
	text := string(config)
	if socket {
		text = strings.NewReplacer(r.c.Dir()+"/root", r.dir+"/root", r.c.Dir()+"/state", r.dir+"/state").Replace(text)
	}
	file := filepath.Join(r.dir, "config.toml")
	e2etest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.Command("containerd", "--config", file)
	e2etest.Must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	pid := cmd.Process.Pid
	eventually(t, "it has its database or its socket", func() bool {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		return slices.ContainsFunc(links, func(name string) bool {
			target, _ := os.Readlink(name)
			return !socket && strings.HasSuffix(target, "/meta.db")
		}) || socket && r.program.peer(t) == pid
	})
	want := map[bool]checks.Severity{true: checks.Critical, false: checks.Warning}[socket]
	c := r.first(t, r.node(t), "RuntimeNotReady")
	finding{want, "ps -o pid,ppid,lstart,args", nil, nil}.of(t, c)
	r.steps().Check(t, c)
}

// peer returns the process behind the socket.
func (p program) peer(t *testing.T) int {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return crictl.Probe(ctx, p.endpoint).PeerPID
}

func (r *podsRig) testFolder(t *testing.T) {
	e2etest.Must(t, r.c.Stop(t.Context()))
	_ = os.Remove(r.c.Socket())
	e2etest.Must(t, os.Mkdir(r.c.Socket(), 0o755))
	defer os.Remove(r.c.Socket())
	for _, o := range []e2etest.Outcome{r.node(t), r.pleg(t)} {
		c := r.first(t, o, "RuntimeDown")
		if !strings.Contains(c.Summary, "not a socket") || o.Code != 1 {
			t.Errorf("exit code %d: %s", o.Code, c.Summary)
		}
		r.steps().Check(t, c)
	}
}
