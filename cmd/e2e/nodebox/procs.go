//go:build e2e

package nodebox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/prometheus/procfs"
)

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
