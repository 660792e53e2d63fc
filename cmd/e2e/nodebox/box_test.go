//go:build e2e

package nodebox

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

func boot(t *testing.T) *Box {
	t.Helper()
	var b *Box
	t.Cleanup(func() { // after the node has ended
		if b != nil {
			checkNothingLeft(t, b.dir)
		}
	})
	b = TestBox(t)
	must(t, b.Boot(t.Context()))
	return b
}

func (b *Box) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.Exec(t.Context(), args...)
	must(t, err)
	return strings.TrimSpace(string(out))
}

func TestEndToEndNodeBoxBoots(t *testing.T) {
	b := boot(t)
	if got := b.must(t, "systemctl", "is-active", "containerd", "systemd-journald",
		"dbus"); got != "active\nactive\nactive" {
		t.Errorf("units: %q, want all active", got)
	}
	if got := b.must(t, "cat", "/proc/1/comm"); got != "systemd" {
		t.Errorf("process 1 in the box is %q", got)
	}

	tool := filepath.Join(t.TempDir(), "tool")
	must(t, os.WriteFile(tool, []byte("#!/bin/sh\necho it runs\n"), 0o755))
	must(t, b.CopyIn(tool, "/usr/local/bin/kdiag"))
	if got := b.must(t, "kdiag"); got != "it runs" {
		t.Errorf("the program that was copied in prints %q", got)
	}

	pods, err := RunPods(t.Context(), b.Endpoint(), Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	must(t, err)
	if len(pods) != 1 {
		t.Errorf("%d pods were made", len(pods))
	}

	pid, err := strconv.Atoi(b.must(t, "systemctl", "show", "--property=MainPID", "--value", "containerd"))
	must(t, err)
	b.must(t, "systemctl", "kill", "--signal=STOP", "containerd")
	stopped := func() (bool, error) {
		state := b.must(t, "ps", "-o", "state=", "-p", strconv.Itoa(pid))
		return state == "T", errors.New("it is in state " + state)
	}
	if err := poll(t.Context(), time.Minute, "containerd in the box to be frozen", stopped); err != nil {
		t.Error(err)
	}
	b.must(t, "systemctl", "kill", "--signal=CONT", "containerd")
	b.must(t, "journalctl", "--sync")
	if got := b.must(t, "journalctl", "--unit=containerd", "--lines=200", "--output=cat"); !strings.Contains(got,
		"containerd successfully booted") {
		t.Errorf("the journal of containerd:\n%s", got)
	}

	if err := b.Poweroff(t.Context()); err != nil {
		t.Error(err)
	}
	if journals, _ := filepath.Glob(filepath.Join(b.Root(), "var/log/journal/*/system.journal")); len(journals) != 1 {
		t.Errorf("journal files after the box was powered off: %v", journals)
	}
}

// TestNodeBoxUnplugged closes a box that runs pods, with its containerd frozen.
func TestEndToEndNodeBoxUnplugged(t *testing.T) {
	b := boot(t)
	if _, err := RunPods(t.Context(), b.Endpoint(), Pods{
		Count: 1, Containers: 1,
		State: crictl.ContainerRunning,
	}); err != nil {
		t.Fatal(err)
	}
	b.must(t, "systemctl", "kill", "--signal=STOP", "containerd")
}
