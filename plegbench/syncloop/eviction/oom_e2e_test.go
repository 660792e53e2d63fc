//go:build e2e

package eviction

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/internal/testkit"
)

// patience is for what takes a moment on a machine that is not busy.
const patience = 2 * time.Minute

// TestEndToEndCgroupOOM has a process run out of memory in a cgroup, which the kernel's log reports.
func TestEndToEndCgroupOOM(t *testing.T) {
	root, limit := "/sys/fs/cgroup", "memory.max"
	if _, err := os.Stat(root + "/memory/memory.limit_in_bytes"); err == nil {
		root, limit = root+"/memory", "memory.limit_in_bytes"
	}
	dir, err := os.MkdirTemp(root, "kdiag-oom-")
	testkit.Must(t, err)
	t.Cleanup(func() {
		deadline := time.Now().Add(patience)
		for err := os.Remove(dir); err != nil; err = os.Remove(dir) {
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // what was killed has not ended yet
		}
	})
	testkit.Must(t, os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(8<<20)), 0o644))
	_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o644) // there may be no swap
	kills, ended := make(chan kill, 1000), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { ended <- watchKills(ctx, "/dev/kmsg", func(k kill) { kills <- k }) }()
	for found := false; !found; { // the watch may not have begun when the first dies, and others die on this machine
		script := "echo $$ > " + dir + "/cgroup.procs && head -c 64M /dev/zero | tail -c 48M > /dev/null"
		if err := exec.CommandContext(ctx, "/bin/sh", "-c", script).Run(); err == nil {
			t.Fatal("the process was not killed")
		}
		select {
		case k := <-kills:
			found = filepath.Base(k.Memcg) == filepath.Base(dir)
		case err := <-ended:
			t.Fatalf("the watch ended before a kill was reported: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	cancel()
	testkit.Must(t, <-ended)
}
