//go:build e2e

package nodebox

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// killAll ends the processes of a Containerd or a Box, frozen ones as well, until there is none. Those of its
// containers end with their cgroups, and those of a Box with its systemd.
func killAll(ctx context.Context, dir string) error {
	return poll(ctx, stopPatience, "the processes of "+dir+" to end", func() (bool, error) {
		alive := 0
		for pid, args := range processes() {
			switch {
			case args[0] == "systemd-nspawn" && slices.Contains(args, "--directory="+dir+"/root"):
				pid = cmp.Or(child(pid), pid)
			case !ofBox(args, dir):
				continue
			}
			alive++
			_ = unix.Kill(pid, unix.SIGKILL) // works on stopped processes as well; it may have ended by itself
		}
		return alive == 0, fmt.Errorf("%d are left", alive)
	})
}

// ofBox reports whether arguments are those of the daemon, a shim, runc or a CNI plugin that works in a folder. Other
// processes that name the folder, such as a pager over the log, are left alone.
func ofBox(args []string, dir string) bool {
	all := strings.Join(args, "\x00")
	base := filepath.Base(args[0])
	return strings.Contains(all, dir+"/cni/bin/") || strings.Contains(all, dir+"/") &&
		(base == "runc" || base == "ctr" || strings.HasPrefix(base, "containerd"))
}

// processes returns the arguments of all processes by their ids. Zombies and the kernel's threads have none and are
// left out.
func processes() map[int][]string {
	all := map[int][]string{}
	procs, _ := procfs.AllProcs()
	for _, p := range procs {
		if args, err := p.CmdLine(); err == nil && len(args) > 0 {
			all[p.PID] = args
		}
	}
	return all
}

// child returns the first child of a process; 0 when it has none.
func child(parent int) int {
	procs, _ := procfs.AllProcs()
	for _, p := range procs {
		if stat, err := p.Stat(); err == nil && stat.PPID == parent {
			return p.PID
		}
	}
	return 0
}

// awaitStopped waits until a process is stopped.
func awaitStopped(ctx context.Context, pid int) error {
	return poll(ctx, stopPatience, fmt.Sprintf("process %d to stop", pid), func() (bool, error) {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return false, err
		}
		stat, err := p.Stat()
		return err == nil && stat.State == "T", err
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
