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
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// apart is set in the environment of tests that run in namespaces of their own.
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
// the tests their part of each hierarchy only, and reaps what they leave behind.
const inside = `set -e
echo init >/proc/1/comm
for root in /sys/fs/cgroup/*/"$0"; do
	[ ! -d "$root" ] || mount --bind "$root" "${root%/*}"
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
	if missing := Missing(true); missing != "" {
		return 0, errors.New(missing)
	}
	cache, err := cacheDir()
	if err != nil {
		return 0, err
	}
	if _, err := baseTree(context.Background(), cache); err != nil {
		return 0, err
	}
	if err := sweepGroups(); err != nil {
		return 0, err
	}
	group := groupPrefix + strconv.Itoa(os.Getpid())
	if err := makeGroups(group); err != nil {
		return 0, err
	}
	cmd := exec.Command("sh", slices.Concat([]string{"-c", enter, inside, group, network, self}, os.Args[1:])...)
	cmd.Env = append(os.Environ(), apart+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		err = nil
	}
	if err != nil {
		return 0, errors.Join(err, removeGroups(group))
	}
	return cmd.ProcessState.ExitCode(), removeGroups(group)
}

// hierarchies returns the roots of the control group hierarchies that the machine has mounted below /sys/fs/cgroup.
// Where version 2 alone is mounted there is none, and the tests share its tree: a group that has processes and gives
// controllers to groups below it is not possible there.
func hierarchies() ([]string, error) {
	files, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	var roots []string
	for _, file := range files {
		root := filepath.Dir(file)
		if _, err := os.Stat(filepath.Join(filepath.Dir(root), "cgroup.procs")); err != nil {
			roots = append(roots, root)
		}
	}
	return roots, err
}

func makeGroups(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		group := filepath.Join(root, name)
		if err := os.Mkdir(group, 0o755); err != nil {
			return err
		}
		// Eight times the share of another group: what else runs on the machine must not make a runtime slow.
		shares := filepath.Join(group, "cpu.shares")
		if _, err := os.Stat(shares); err == nil {
			if err := os.WriteFile(shares, []byte("8192"), 0o644); err != nil {
				return err
			}
		}
		// A new cpuset of version 1 has neither processors nor memory and takes no process.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(root, file))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(group, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepGroups removes the groups of owners that were killed. What ran in them has been killed with them.
func sweepGroups() error {
	roots, err := hierarchies()
	errs := []error{err}
	for _, root := range roots {
		left, err := filepath.Glob(filepath.Join(root, groupPrefix+"*"))
		errs = append(errs, err)
		for _, group := range left {
			name := filepath.Base(group)
			if _, err := os.Stat("/proc/" + strings.TrimPrefix(name, groupPrefix)); errors.Is(err, os.ErrNotExist) {
				errs = append(errs, removeGroups(name))
			}
		}
	}
	return errors.Join(errs...)
}

// removeGroups removes groups in which nothing runs any more.
func removeGroups(name string) error {
	roots, err := hierarchies()
	errs := []error{err}
	for _, root := range roots {
		var groups []string
		err := filepath.WalkDir(filepath.Join(root, name), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) { // another may sweep, too
			errs = append(errs, err)
		}
		for _, group := range slices.Backward(groups) {
			if err := os.Remove(group); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
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
