//go:build e2e

package faults

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// watchEnv makes the test binary a listener of fanotify: TestMain looks for it. It names a mount point, or a program.
// answerEnv is how many events it answers, and not at once; none without it.
const (
	watchEnv  = "KDIAG_TEST_WATCH"
	answerEnv = "KDIAG_TEST_ANSWER"
)

// watch makes all who open a file below a mount point, or start a program, wait for this process.
func watch(path string) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_LARGEFILE)
	if err == nil {
		flags, mask := uint(unix.FAN_MARK_ADD), uint64(unix.FAN_OPEN_EXEC_PERM)
		if info, _ := os.Stat(path); info.IsDir() {
			flags, mask = unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, unix.FAN_OPEN_PERM
		}
		err = unix.FanotifyMark(fd, flags, mask, unix.AT_FDCWD, path)
	}
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString("up\n")
	answers, _ := strconv.Atoi(os.Getenv(answerEnv))
	b := make([]byte, unix.FAN_EVENT_METADATA_LEN) // of one event
	for range answers {
		if _, err := unix.Read(fd, b); err != nil {
			panic(err)
		}
		time.Sleep(200 * time.Millisecond)
		file := b[16:20]
		_, _ = unix.Write(fd, append(file[:4:4], binary.NativeEndian.AppendUint32(nil, unix.FAN_ALLOW)...))
		_ = unix.Close(int(binary.NativeEndian.Uint32(file)))
	}
	// A start that the test did not expect would wait for this process, and the test with it, which could not end it.
	time.AfterFunc(2*time.Minute, func() { os.Exit(1) })
	for {
		_ = unix.Pause()
	}
}

// watch starts a listener of fanotify, which ends with the test.
func (r rig) watch(path string, env ...string) e2etest.Maker {
	return func(t *testing.T, at *place) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), append(env, watchEnv+"="+path)...)
		e2etest.StartUntilUp(t, cmd)
		at.Culprit = strconv.Itoa(cmd.Process.Pid)
	}
}

// watchRoot has a listener on the mount of the daemon's root folder, while pods start.
func (r rig) watchRoot(env ...string) e2etest.Maker {
	return func(t *testing.T, at *place) {
		root := filepath.Join(r.Dir(), "root")
		e2etest.Must(t, unix.Mount(root, root, "", unix.MS_BIND, ""))
		t.Cleanup(func() { e2etest.Must(t, unix.Unmount(root, unix.MNT_DETACH)) })
		r.watch(root, env...)(t, at)
		r.busy(t, at)
		waits(t, fmt.Sprintf("/proc/%d/task/*/wchan", r.PID()))
	}
}

// watchRuntime has a listener that is stopped on the OCI runtime's program, while a pod starts.
func (r rig) watchRuntime(t *testing.T, at *place) {
	r.watch(r.Folder+"/fastrun")(t, at)
	e2etest.Sh(t, "kill -STOP "+at.Culprit)
	r.RunBehind(t, nodebox.Pods{Prefix: "begins"})
	waits(t, "/proc/[0-9]*/wchan")
}

// watchKdiag has a listener on kdiag's own program that permits two starts: that of kdiag, and of its worker.
func (r rig) watchKdiag(t *testing.T, at *place) {
	program := filepath.Join(t.TempDir(), "kdiag")
	e2etest.Must(t, exec.Command("cp", at.Program, program).Run())
	at.Program = program
	r.watch(program, answerEnv+"=2")(t, at)
}

// waits returns when a task waits for a listener.
func waits(t *testing.T, wchan string) {
	e2etest.Eventually(t, "a task waits for a listener", func() bool {
		names, _ := filepath.Glob(wchan)
		return slices.ContainsFunc(names, func(name string) bool {
			text, _ := os.ReadFile(name)
			return strings.HasPrefix(string(text), "fanotify")
		})
	})
}
