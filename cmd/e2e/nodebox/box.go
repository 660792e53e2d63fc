//go:build e2e

package nodebox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootPatience is how long a boot may take on two busy cores, where ten seconds are usual.
const bootPatience = 3 * time.Minute

// boxPrefix begins the name of every whole node's folder.
const boxPrefix = "kdiag-node-"

// sigPoweroff asks systemd, as process 1, to power off: SIGRTMIN+4.
const sigPoweroff = syscall.Signal(34 + 4)

// A Box is a whole node: systemd, journald, D-Bus and containerd in a systemd-nspawn container that shares the
// machine's network. Its root is an overlay over a base tree, so that a new one costs little. Its methods are for one
// goroutine.
type Box struct {
	dir    string
	lock   *os.File
	nspawn *exec.Cmd
	done   <-chan struct{} // closed when nspawn has ended
	leader int             // process id of its systemd, as the machine sees it
}

// NewBox prepares a node under the folder of temporary files. A folder keeps the base tree for later boxes; making it
// takes about a minute and the network, but only the first time.
func NewBox(ctx context.Context, cache string) (*Box, error) {
	base, err := baseTree(ctx, cache)
	if err != nil {
		return nil, err
	}
	b := &Box{}
	if b.dir, b.lock, err = newFolder(ctx, "", boxPrefix); err == nil {
		err = b.prepare(base)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing a box: %w", err), b.Close())
	}
	return b, nil
}

func (b *Box) prepare(base string) error {
	for _, name := range []string{"upper", "work", "root", "containerd"} {
		if err := os.Mkdir(b.path(name), 0o755); err != nil {
			return err
		}
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", base, b.path("upper"), b.path("work"))
	if err := unix.Mount("overlay", b.Root(), "overlay", 0, data); err != nil {
		return fmt.Errorf("mounting an overlay over %s: %w", base, err)
	}
	return furnish(b.Root())
}

func (b *Box) path(name string) string { return filepath.Join(b.dir, name) }

// Root returns the folder that is the box's root file system, for reading and writing from outside.
func (b *Box) Root() string { return b.path("root") }

// Leader returns the process id of the box's systemd, as the machine sees it; /proc/LEADER/root leads to the box's
// files with its own mounts, such as /run.
func (b *Box) Leader() int { return b.leader }

// Endpoint returns the address of the box's containerd as this machine reaches it.
func (b *Box) Endpoint() string {
	return "unix:///proc/" + strconv.Itoa(b.Leader()) + "/root/run/containerd/containerd.sock"
}

// Boot starts the node and returns when systemd is running and CRI has its images. The node outlives ctx.
func (b *Box) Boot(ctx context.Context) error {
	if err := b.boot(ctx); err != nil {
		return fmt.Errorf("booting a box: %w; its console ends with:\n%s", err, tail(b.path("console")))
	}
	return nil
}

func (b *Box) boot(ctx context.Context) error {
	cgroups, err := b.makeCgroups()
	if err != nil {
		return err
	}
	// The shell enters the cgroups, given after the options, and becomes systemd-nspawn.
	cmd := exec.Command("/bin/sh", append([]string{"-c", enterCgroups, "sh"}, b.nspawnArgs(cgroups)...)...)
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes")
	done, err := spawn(cmd, b.path("console"))
	if err != nil {
		return err
	}
	b.nspawn, b.done = cmd, done
	running := func() (bool, error) { return b.isRunning(ctx) }
	if err := poll(ctx, bootPatience, "systemd to be up", running); err != nil {
		return err
	}
	if _, err := b.Exec(ctx, "ctr", "--namespace", "k8s.io", "images", "import", imagesInBox); err != nil {
		return err
	}
	return awaitImages(ctx, b.Endpoint())
}

// nspawnArgs are the options that a container runtime in the container needs: all capabilities, the system calls of
// runc and of systemd's own sandboxing, the kernel log, and its cgroups. containerd's folder is bound from the machine
// because an overlay cannot lie on an overlay.
func (b *Box) nspawnArgs(cgroups []string) []string {
	args := []string{
		"--quiet", "--register=no", "--keep-unit", "--directory=" + b.Root(), "--machine=" + filepath.Base(b.dir),
		"--capability=all", "--private-users=no", "--console=pipe",
		"--system-call-filter=@keyring bpf @privileged @debug perf_event_open",
		"--bind=/dev/kmsg", "--bind=" + b.path("containerd") + ":/var/lib/containerd",
	}
	if len(cgroups) > 1 { // version 1: one folder for each hierarchy, in a folder that holds nothing else
		args = append(args, "--tmpfs=/sys/fs/cgroup:mode=0755")
	}
	for _, root := range cgroups {
		args = append(args, "--bind="+filepath.Join(root, filepath.Base(b.dir))+":"+root)
	}
	return append(args, "--boot")
}

// isRunning asks systemd in the box how it is. A failed unit is an error at once, since it will not heal.
func (b *Box) isRunning(ctx context.Context) (bool, error) {
	if b.leader = child(b.nspawn.Process.Pid); b.leader == 0 {
		return false, errors.New("systemd-nspawn has no child")
	}
	out, err := b.Exec(ctx, "systemctl", "is-system-running")
	switch state := strings.TrimSpace(string(out)); {
	case state == "running":
		return true, nil
	case state == "degraded":
		failed, _ := b.Exec(ctx, "systemctl", "--failed", "--no-legend", "--plain")
		return false, fmt.Errorf("failed units: %s", failed)
	case err != nil:
		return false, err
	default:
		return false, errors.New("it is " + state)
	}
}

// Exec runs a command in the box and returns what it printed. An error holds the last lines of it.
func (b *Box) Exec(ctx context.Context, args ...string) ([]byte, error) {
	if b.leader == 0 {
		return nil, errors.New("the box is not booted")
	}
	enter := []string{"--target", strconv.Itoa(b.leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"}
	return run(ctx, "nsenter", append(append(enter, "--"), args...)...)
}

// CopyIn copies a file of the machine, such as the program under test, to a path in the box. It stays executable.
func (b *Box) CopyIn(from, to string) error {
	target := filepath.Join(b.Root(), to)
	if b.leader != 0 { // the box's own mounts, such as /run, hide what lies below them
		target = filepath.Join("/proc", strconv.Itoa(b.leader), "root", to)
	}
	_, err := run(context.Background(), "cp", "--preserve=mode", from, target)
	return err
}

// Poweroff shuts the node down in order, so that journald writes everything out, and waits for the end.
func (b *Box) Poweroff(ctx context.Context) error {
	if b.leader == 0 {
		return nil
	}
	if err := unix.Kill(b.leader, sigPoweroff); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("powering off the box: %w", err)
	}
	err := awaitEnd(ctx, b.done, "the box")
	if err == nil {
		b.leader = 0
	}
	return err
}

// Close kills the node, if it still runs, and removes it. The kernel ends all processes of a box with its leader,
// frozen ones as well.
func (b *Box) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*stopPatience)
	defer cancel()
	if b.dir == "" {
		return nil
	}
	err := clean(ctx, b.dir)
	if b.nspawn != nil {
		err = errors.Join(err, awaitEnd(ctx, b.done, "the box"))
	}
	if b.lock != nil {
		b.lock.Close()
	}
	return err
}
