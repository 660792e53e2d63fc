//go:build e2e

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

// TestEndToEndStacks breaks a real containerd in one way after the other. In each kdiag pleg --stacks must name the
// goroutine, the call that it serves, the object and the process behind it.
func TestEndToEndStacks(t *testing.T) {
	r := newPodsRig(t)
	r.pods = e2etest.RunPods(t, r.c, nodebox.Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})
	net := e2etest.RunPods(t, r.c, nodebox.Pods{
		Prefix: "gone", Count: 1, Containers: 1, State: crictl.ContainerRunning, PodNetwork: true,
	})[0]

	t.Run("healthy and busy", r.testBusy)
	t.Run("an update waits for runc", r.testUpdateHangs)
	t.Run("an update waits for a stopped shim", r.testWedged) // which has an update of its own to do when it goes on
	t.Run("runc and CNI plugins hang", func(t *testing.T) { r.testProgramsHang(t, net) })
	t.Run("containerd is stopped", r.testStopped)
	t.Run("the disk is frozen", r.testFrozenDisk)
	t.Run("another process has the database", r.testDatabase)
}

// stacks asks as a person does who wants goroutine dumps.
func (r *podsRig) stacks(t *testing.T, args ...string) e2etest.Outcome {
	t.Helper()
	args = append([]string{"pleg", "--stacks"}, args...)
	if testing.Verbose() {
		t.Log(r.run(t, nil, append(args, "--color", "never", "--details")...).Stdout)
	}
	return r.run(t, nil, append(args, "-o", "json")...)
}

// shows returns a cause of a report, and fails unless each pattern matches its summary or a line of its evidence, and
// unless the dump that was taken is left out of its steps.
func (r *podsRig) shows(t *testing.T, o e2etest.Outcome, code string, patterns ...string) checks.Cause {
	t.Helper()
	c := r.first(t, o, code)
	lines := slices.Concat([]string{c.Summary}, c.Evidence.For, c.Evidence.Missing)
	for _, p := range patterns {
		if !slices.ContainsFunc(lines, regexp.MustCompile(p).MatchString) {
			t.Errorf("%s shows no %q:\n%s", code, p, strings.Join(lines, "\n"))
		}
	}
	for _, s := range c.NextSteps {
		if strings.Contains(s.Command, "stacks --capture") {
			t.Errorf("%s advises %q", code, s.Command)
		}
	}
	return c
}

// quote quotes what a pattern has to match as it is.
func quote(format string, args ...any) string { return regexp.QuoteMeta(fmt.Sprintf(format, args...)) }

// testBusy asks while pods are made.
func (r *podsRig) testBusy(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil && i < 20; i++ {
			_, _ = r.c.RunPods(ctx, nodebox.Pods{
				Prefix: fmt.Sprint("busy", i), Count: 2, Containers: 1, Attempts: 2, State: crictl.ContainerExited,
			})
		}
	}()
	defer func() { cancel(); <-done }()
	got := r.stacks(t)
	names(t, got)
	notes := strings.Join(got.Report(t).Notes, "\n")
	if !strings.Contains(notes, "goroutine") || strings.Contains(got.Stdout, "holds the") {
		t.Errorf("notes %q, want a dump in which nobody holds up the others", notes)
	}
}

func (r *podsRig) testWedged(t *testing.T) {
	pod := r.pods[0]
	pid, err := r.c.Shim(pod.ID)
	e2etest.Must(t, err)
	release, err := r.c.Wedge(t.Context(), pod.ID, pod.Containers[0].ID)
	e2etest.Must(t, err)
	defer func() { e2etest.Must(t, release()) }()
	r.shows(t, r.stacks(t), "ListHang",
		`goroutine \d+ .*\(UpdateContainerResources\b.*\).*lock of a container's status.*shim's reply to Update`,
		`goroutines? waits? for it, serving .*ListContainers`,
		quote("(pid %d) of box/%s", pid, pod.Config.GetMetadata().GetName())+".*stopped",
	)
}

// testUpdateHangs is the same for containerd 2, of which no lock is held while a shim is stopped.
func (r *podsRig) testUpdateHangs(t *testing.T) {
	release := r.hang(t, "update")
	end, err := r.c.Update(t.Context(), r.pods[1].Containers[0].ID)
	e2etest.Must(t, err)
	defer end()
	defer release()
	awaitProcess(t, facts.LongOCI, r.dir, " update ")
	r.shows(t, r.stacks(t), "ListHang",
		`goroutine \d+ .*\(UpdateContainerResources\b.*\) holds the lock of a container's status .*reply to Update: `+
			`\w+ \(pid \d+\) of box/`+r.pods[1].Config.GetMetadata().GetName())
}

func (r *podsRig) testProgramsHang(t *testing.T, net nodebox.Pod) {
	release := r.hang(t, "create")
	defer release()
	r.start(t, nodebox.Pods{Prefix: "slow"})
	awaitProcess(t, 0, r.dir, " create ")
	e2etest.Must(t, r.c.HangCNI())
	defer func() { e2etest.Must(t, r.c.ReleaseCNI()) }()
	r.start(t, nodebox.Pods{Prefix: "net", PodNetwork: true})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		cri, err := remote.Dial(r.c.Endpoint(), remote.Options{Timeout: time.Hour})
		if err == nil {
			defer cri.Close()
			_ = cri.StopPodSandbox(ctx, net.ID)
		}
	}()
	defer func() { cancel(); <-done }()
	awaitProcess(t, facts.StuckWork, r.c.Dir(), "cni/bin")
	awaitProcess(t, facts.StuckWork, r.dir, " create ")
	got := r.stacks(t)
	r.shows(t, got, "ShimStuck", `goroutine \d+ of containerd .*\(RunPodSandbox\b.*\).*shim's reply to Create`,
		`goroutine \d+ of containerd-shim.*\(Create\b.*\).*waits for runc create: .* \(pid \d+\) of .*box/slow-0`)
	r.shows(t, got, "CNIHung",
		`goroutine \d+ .*\(RunPodSandbox\b.*\).*CNI plugin \(ADD\): \w+ \(pid \d+\) of box/net-0`,
		`goroutine \d+ .*\(StopPodSandbox\b.*\).*CNI plugin \(DEL\): \w+ \(pid \d+\) of box/gone-0`)
}

func (r *podsRig) testStopped(t *testing.T) {
	e2etest.Must(t, r.c.Pause(t.Context()))
	defer func() { e2etest.Must(t, r.c.Resume()) }()
	r.shows(t, r.stacks(t, "--rpc-timeout", "2s"), "RuntimeHung",
		quote("goroutine dump: containerd (pid %d) is stopped", r.c.PID()), `threads of it in state T.*do_signal_stop`)
}

// testFrozenDisk puts the runtime's root folder on a disk, freezes it, and has the runtime write.
func (r *podsRig) testFrozenDisk(t *testing.T) {
	e2etest.Must(t, r.c.Stop(t.Context()))
	image, root := filepath.Join(r.dir, "disk"), filepath.Join(r.c.Dir(), "root")
	sh := func(command string) {
		t.Helper()
		if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	sh("truncate -s 128M " + image + " && mkfs.ext4 -q " + image + " && mount -o loop " + image + " " + root)
	defer func() {
		e2etest.Must(t, r.c.Stop(t.Context()))
		eventually(t, "unmounted", func() bool { return unix.Unmount(root, 0) == nil })
		e2etest.Must(t, r.c.Restart(t.Context()))
	}()
	e2etest.Must(t, r.c.Restart(t.Context()))
	sh("fsfreeze -f " + root)
	write := exec.Command("ctr", "-a", r.c.Socket(), "namespaces", "create", "frozen")
	e2etest.Must(t, write.Start())
	defer func() { sh("fsfreeze -u " + root); _ = write.Wait() }()
	time.Sleep(time.Second)
	r.shows(t, r.stacks(t), "IOStall", `goroutine \d+ of containerd.* waits for (the disk|a file system)`)
}

// testDatabase starts the daemon while this process has the lock of its database.
func (r *podsRig) testDatabase(t *testing.T) {
	e2etest.Must(t, r.c.Stop(t.Context()))
	db, err := os.OpenFile(filepath.Join(r.c.Dir(), "root/io.containerd.metadata.v1.bolt/meta.db"), os.O_RDWR, 0)
	e2etest.Must(t, err)
	defer db.Close()
	e2etest.Must(t, unix.Flock(int(db.Fd()), unix.LOCK_EX))
	started := make(chan error, 1)
	go func() { started <- r.c.Restart(t.Context()) }()
	defer func() {
		e2etest.Must(t, unix.Flock(int(db.Fd()), unix.LOCK_UN))
		e2etest.Must(t, <-started)
	}()
	awaitProcess(t, 2*time.Second, r.c.Dir()+"/config.toml")
	r.shows(t, r.stacks(t), "RuntimeDown",
		`goroutine \d+ of containerd waits for the lock of the database .*/meta.db: `+
			quote("nodecmd.test (pid %d)", os.Getpid()))
}
