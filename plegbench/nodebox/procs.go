package nodebox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// killAll ends the processes of a box, frozen ones as well, until there is none. Those of its containers end with their
// cgroups.
func killAll(ctx context.Context, l layout) error {
	return poll(ctx, stopPatience, "the processes of "+l.dir+" to end", func() (bool, error) {
		alive := 0
		for _, pid := range processIDs() {
			if ofBox(cmdline(pid), l.dir) { // not a zombie: that has no arguments
				alive++
				_ = unix.Kill(pid, unix.SIGKILL) // works on stopped processes as well; it may have ended by itself
			}
		}
		return alive == 0, fmt.Errorf("%d are left", alive)
	})
}

// ofBox reports whether arguments are those of the daemon, a shim, runc or a CNI plugin that works in a folder. Other
// processes that name the folder, such as a pager over the log, are left alone.
func ofBox(args []byte, dir string) bool {
	program, _, _ := bytes.Cut(args, []byte{0})
	base := filepath.Base(string(program))
	if base == "runc" || base == "ctr" || strings.HasPrefix(base, "containerd") {
		return bytes.Contains(args, []byte(dir+"/"))
	}
	return bytes.Contains(args, []byte(dir+"/cni/bin/"))
}

func processIDs() []int {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(filepath.Base(e)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func cmdline(pid int) []byte {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return b
}

// processStat returns the state and the parent of a process from /proc/PID/stat; zeros when there is none.
func processStat(pid int) (state byte, parent int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0][0], parent
}

// killBox kills the systemd of the node in a folder, and the systemd-nspawn above it.
func killBox(ctx context.Context, dir string) error {
	return poll(ctx, stopPatience, "the node in "+dir+" to end", func() (bool, error) {
		alive := 0
		for _, pid := range processIDs() {
			args := cmdline(pid)
			if !bytes.HasPrefix(args, []byte("systemd-nspawn\x00")) || !bytes.Contains(args, []byte("="+dir+"/root\x00")) {
				continue
			}
			alive++
			if leader := child(pid); leader > 0 {
				_ = unix.Kill(leader, unix.SIGKILL)
			} else {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		return alive == 0, fmt.Errorf("%d of its processes are left", alive)
	})
}

// awaitState waits until a process is in the given state.
func awaitState(ctx context.Context, pid int, want byte) error {
	what := fmt.Sprintf("process %d to be in state %c", pid, want)
	return poll(ctx, stopPatience, what, func() (bool, error) {
		state, _ := processStat(pid)
		return state == want, fmt.Errorf("it is in state %q", state)
	})
}

// cgroupProcs returns the processes in one cgroup.
func cgroupProcs(dir string) []int {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// spawn starts a process in its own session, because an interrupt from the terminal is for its owner, who cleans up.
// Its output is appended to a file. The channel is closed when it has ended.
func spawn(cmd *exec.Cmd, output string) (<-chan struct{}, error) {
	log, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(done)
	}()
	return done, nil
}

// awaitEnd waits until a process has ended.
func awaitEnd(ctx context.Context, done <-chan struct{}, what string) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end: %w", what, ctx.Err())
	}
}

// tail returns the end of a file, for an error.
func tail(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(b), 10)
}
