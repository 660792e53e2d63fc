//go:build e2e

package nodebox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// apart is set in the environment of tests that run in namespaces of their own, to the name of their control groups.
const apart = "KDIAG_E2E_APART"

// Main runs a package's tests in pid, mount, network, IPC, UTS and control group namespaces of their own, so that no
// package sees the stopped shims, mounts, ports or killed daemons of another. The processes of a package end with it,
// however it ends. The kernel, its log, the load and the disks are shared.
//
// The network is shared where KUBECONFIG_E2E names an API server, which may be anywhere. What whole nodes are made of
// comes from the network, and is therefore made before.
func Main(m *testing.M) {
	network := "--net"
	if os.Getenv("KUBECONFIG_E2E") != "" {
		network = ""
	}
	main(m, network)
}

// MainOnline is Main with the network of the machine, for a package whose tests fetch something.
func MainOnline(m *testing.M) { main(m, "") }

func main(m *testing.M, network string) {
	if os.Getenv(apart) == "" {
		code, err := runApart(network)
		if err != nil {
			fmt.Fprintf(os.Stderr, "running apart: %v\n", err)
			code = 1
		}
		os.Exit(code)
	}
	if err := loopbackUp(); err != nil {
		fmt.Fprintf(os.Stderr, "bringing up the loopback: %v\n", err)
		os.Exit(1)
	}
	// Below nohup these tests ignore SIGHUP, and kdiag would inherit that. What is caught is not inherited.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(m.Run())
}

// enter moves the shell into the control groups named $1, and makes the namespaces. The order matters: a control group
// namespace begins where the process is.
const enter = `set -e
group=$1 namespaces=$2
shift 2
for root in /sys/fs/cgroup/*/"$group"; do
	[ ! -e "$root/cgroup.procs" ] || echo 0 >"$root/cgroup.procs"
done
exec unshare --pid --fork --kill-child --mount-proc --mount --ipc --uts --cgroup $namespaces sh -c "$0" "$group" "$@"`

// inside is process 1 of the namespaces, with the name of a host's, or kdiag would say that it sees no host. It shows
// the tests their part of each hierarchy only, gives them the folders in which no configuration of containerd changes
// what is written, and reaps what they leave behind.
const inside = `set -e
printf init >/proc/1/comm
for root in /sys/fs/cgroup/*/"$0"; do
	[ ! -d "$root" ] || mount --bind "$root" "${root%/*}"
done
for dir in /run/containerd /var/lib/cni; do
	mkdir -p $dir
	mount -t tmpfs none $dir
done
set +e
"$@"
exit $?`

// groupPrefix begins the names of the control groups. The process id of their owner ends them.
const groupPrefix = "kdiag-e2e-"

// runApart runs this program again in the namespaces, and returns its exit code.
func runApart(network string) (code int, err error) {
	runtime.LockOSThread() // the child gets its signal when this thread ends
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	if lack := missing(); lack != "" {
		return 0, errors.New(lack)
	}
	ctx, group := context.Background(), groupPrefix+strconv.Itoa(os.Getpid())
	_, err = baseTree(ctx)
	if err := errors.Join(err, sweep(ctx), makeGroups(group)); err != nil {
		return 0, err
	}
	cmd := exec.Command("sh", slices.Concat([]string{"-c", enter, inside, group, network, self}, os.Args[1:])...)
	cmd.Env = append(os.Environ(), apart+"="+group)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), errors.Join(err, removeCgroups(ctx, map[string]bool{group: true}))
}

// makeGroups makes a control group in each hierarchy that the machine has mounted below /sys/fs/cgroup. Where version 2
// alone is mounted there is none, and the tests share its tree: a group that has processes and gives controllers to
// groups below it is not possible there.
func makeGroups(name string) error {
	// The type counts, not the file cgroup.procs: runtimes that take the machine for one of version 2 write it into a
	// tmpfs.
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil || fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return err
	}
	files, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	for _, file := range files {
		group := filepath.Join(filepath.Dir(file), name)
		err = errors.Join(err, makeCgroup(group))
		// Eight times the share of another group: what else runs on the machine must not make a runtime slow.
		shares := filepath.Join(group, "cpu.shares")
		if _, missing := os.Stat(shares); missing == nil {
			err = errors.Join(err, os.WriteFile(shares, []byte("8192"), 0o644))
		}
	}
	return err
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
