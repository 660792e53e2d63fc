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
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bootPatience is how long a boot may take on two busy cores, where ten seconds are usual.
const bootPatience = 3 * time.Minute

// sigPoweroff asks systemd, as process 1, to power off: SIGRTMIN+4.
const sigPoweroff = syscall.Signal(34 + 4)

// A Box is a whole node: systemd, journald, D-Bus and containerd in a systemd-nspawn container that shares the
// machine's network. Its root is an overlay over a base tree, so that a new one costs little. Its methods are for one
// goroutine.
type Box struct {
	dir    string
	nspawn *exec.Cmd
	done   <-chan struct{} // closed when nspawn has ended
	leader int             // process id of its systemd, as the machine sees it
}

// TestBox prepares a whole node for a test and ends it with the test. It is not booted yet.
func TestBox(t testing.TB) *Box {
	t.Helper()
	base, err := baseTree(t.Context())
	must(t, err)
	dir, err := newFolder("")
	must(t, err)
	b := &Box{dir: dir}
	t.Cleanup(func() { // the kernel ends all processes of a box with its leader, frozen ones as well
		ctx, cancel := context.WithTimeout(context.Background(), 2*stopPatience)
		defer cancel()
		err := clean(ctx, b.dir)
		if b.nspawn != nil {
			err = errors.Join(err, awaitEnd(ctx, b.done, "the box"))
		}
		must(t, err)
	})
	for _, name := range []string{"upper", "work", "root", "containerd"} {
		must(t, os.Mkdir(b.path(name), 0o755))
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", base, b.path("upper"), b.path("work"))
	must(t, unix.Mount("overlay", b.Root(), "overlay", 0, data))
	b.furnish(t)
	return b
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

// Boot starts the node and returns when systemd is running and CRI has its images.
func (b *Box) Boot(tb testing.TB) {
	tb.Helper()
	cgroups, err := b.makeCgroups()
	must(tb, err)
	// The shell enters the cgroups, given after the options, and becomes systemd-nspawn.
	cmd := exec.Command("/bin/sh", append([]string{"-c", enterCgroups, "sh"}, b.nspawnArgs(cgroups)...)...)
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes")
	b.done, err = spawn(cmd, b.path("console"))
	must(tb, err)
	b.nspawn = cmd
	running := func() (bool, error) { return b.isRunning(tb.Context()) }
	if err := poll(tb.Context(), bootPatience, "systemd to be up", running); err != nil {
		tb.Fatalf("%v; its console ends with:\n%s", err, tail(b.path("console")))
	}
	_, err = b.Exec(tb.Context(), "ctr", "--namespace", "k8s.io", "images", "import", imagesInBox)
	must(tb, err)
	must(tb, awaitImages(tb.Context(), b.Endpoint()))
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
	if err := unix.Kill(b.leader, sigPoweroff); err != nil {
		return fmt.Errorf("powering off the box: %w", err)
	}
	return awaitEnd(ctx, b.done, "the box")
}

// enterCgroups moves a shell into each cgroup named like the box, and then runs systemd-nspawn in its place.
// systemd-nspawn makes a cgroup namespace of where it starts.
const enterCgroups = `for a; do
	case "$a" in
	--bind=*:/sys/fs/cgroup*) a=${a#--bind=}; echo $$ > "${a%%:*}/cgroup.procs" || exit ;;
	esac
done
exec systemd-nspawn "$@"`

// makeCgroups makes a cgroup for the box in every hierarchy and returns their roots, so that its systemd cannot touch
// the machine's. Where systemd runs the machine there is nothing to do: it delegates a part of its tree to
// systemd-nspawn.
func (b *Box) makeCgroups() ([]string, error) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return nil, nil
	}
	roots, err := mountsBelow("/sys/fs/cgroup")
	if len(roots) > 1 { // version 1: the first is the folder of the hierarchies
		roots = roots[1:]
	}
	for _, root := range roots {
		err = errors.Join(err, makeCgroup(filepath.Join(root, filepath.Base(b.dir))))
	}
	return roots, err
}
