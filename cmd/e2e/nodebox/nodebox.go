//go:build e2e

// Package nodebox makes disposable real nodes for end-to-end tests and benches.
//
// A Containerd is a private containerd with its CRI plugin: its own folder, socket, images and pods, next to whatever
// else runs on the machine. It needs root and Debian's packages containerd, runc and busybox-static. A Box is a whole
// node with systemd, journald, D-Bus and containerd in a systemd-nspawn container; it needs debootstrap and
// systemd-container too, and a package archive the first time. Only tests and the benchmarks of docs/bench use this
// package.
//
// Faults are real: the daemon is frozen, stopped or killed, a shim is stopped, a CNI plugin does not return. No image
// registry is reached; images are built from the machine's own busybox. A test leaves no process, mount or file behind,
// also when the daemon is frozen or dead. What a run leaves that is killed, the next run removes.
//
// A box has no kubelet, no pod networking (a stub plugin gives an address without an interface), and no limits that
// need systemd's cgroup driver.
package nodebox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// busybox is the static program that images are made of, as Debian's busybox-static installs it.
const busybox = "/bin/busybox"

// missing returns what this machine lacks to run a Containerd or a Box, as a sentence; empty for nothing.
func missing() string {
	var lack []string
	if os.Geteuid() != 0 {
		lack = append(lack, "root")
	}
	programs := []string{
		"containerd", "ctr", "runc", "containerd-shim-runc-v2", "debootstrap", "systemd-nspawn", "nsenter",
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			lack = append(lack, p)
		}
	}
	if _, err := os.Stat(busybox); err != nil {
		lack = append(lack, "busybox-static")
	}
	if len(lack) == 0 {
		return ""
	}
	return "a real node needs " + strings.Join(lack, ", ")
}

// must ends a test or a benchmark that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// poll calls done every few milliseconds until it returns true, ctx ends or patience is over. The error then wraps the
// last one of done.
func poll(ctx context.Context, patience time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pause := 5 * time.Millisecond
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(pause):
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
}

// run runs a command. The error contains the end of its output.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(string(out), 5))
	}
	return out, nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
