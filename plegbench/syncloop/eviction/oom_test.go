package eviction

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

const (
	before      = "6,2,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
	inContainer = before + "oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=stress,pid=42,uid=0"
	inSystem    = before + "global_oom,task_memcg=/user.slice,task=my, app,pid=77,uid=1000"
	atRoot      = before + "oom_memcg=/,task_memcg=/a,task=b,pid=5,uid=0"
)

func TestParseKill(t *testing.T) {
	for record, want := range map[string]kill{
		inContainer: {"/kubepods/pod1", "stress", 42},
		inSystem:    {"", "my, app", 77},
		atRoot:      {"/", "b", 5},
		"4,1,1,-;stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0": {},
		"": {},
		strings.Replace(inSystem, "pid=77", "pid=99999999999999999999", 1): {},
	} {
		got, ok := parseKill(record)
		if !ok {
			got = kill{}
		}
		if got != want || ok != (want.PID != 0) || ok && got.global() != (want.Memcg != "/kubepods/pod1") {
			t.Errorf("%q: %+v, %v", record, got, ok)
		}
	}
}

func FuzzParseKill(f *testing.F) {
	f.Add(inContainer)
	f.Add(inSystem)
	f.Fuzz(func(t *testing.T, record string) {
		if k, ok := parseKill(record); ok && (k.PID < 0 || !strings.Contains(record, "task="+k.Process+",pid=")) {
			t.Errorf("%+v from %q", k, record)
		}
	})
}

func TestWatchOOM(t *testing.T) {
	n := newNode(500, 500)
	if err := n.WatchOOM(t.Context(), filepath.Join(t.TempDir(), "kmsg")); err == nil ||
		!strings.Contains(err.Error(), "the kernel's log") {
		t.Errorf("without a log: %v", err)
	}
	n.reportKill(kill{"/kubepods/pod1", "stress", 42}) // only kills of the system are reported
	n.reportKill(kill{"", "my, app", 77})
	want := []string{"Warning SystemOOM System OOM encountered, victim process: my, app, pid: 77"}
	if diff := cmp.Diff(want, events(n.recorder)); diff != "" {
		t.Error(diff)
	}
}

// patience is for what takes a moment on a machine that is not busy.
const patience = 2 * time.Minute

// TestEndToEndCgroupOOM has a process run out of memory in a cgroup, which the kernel's log reports.
func TestEndToEndCgroupOOM(t *testing.T) {
	root, limit := "/sys/fs/cgroup", "memory.max"
	if _, err := os.Stat(root + "/memory/memory.limit_in_bytes"); err == nil {
		root, limit = root+"/memory", "memory.limit_in_bytes"
	}
	dir, err := os.MkdirTemp(root, "kdiag-oom-")
	if err != nil {
		nodebox.Need(t, err.Error())
	}
	t.Cleanup(func() {
		deadline := time.Now().Add(patience)
		for err := os.Remove(dir); err != nil; err = os.Remove(dir) {
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // what was killed has not ended yet
		}
	})
	if err := os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(8<<20)), 0o644); err != nil {
		nodebox.Need(t, err.Error())
	}
	_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0o644) // there may be no swap
	kills := make(chan kill, 10)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		ended <- watchKills(ctx, "/dev/kmsg", func(k kill) {
			select {
			case kills <- k:
			case <-ctx.Done():
			}
		})
	}()
	for { // the watch may not have begun when the first dies
		script := "echo $$ > " + dir + "/cgroup.procs && head -c 64M /dev/zero | tail -c 48M > /dev/null"
		if err := exec.CommandContext(ctx, "/bin/sh", "-c", script).Run(); err == nil {
			nodebox.Need(t, "the process was not killed")
		}
		again := time.After(time.Second)
		for waits := true; waits; {
			select {
			case k := <-kills:
				if filepath.Base(k.Memcg) != filepath.Base(dir) {
					continue // another's on this machine
				}
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("the watch ended with %v", err)
				}
				return
			case err := <-ended:
				if ctx.Err() != nil {
					t.Fatal("no kill was reported")
				}
				nodebox.Need(t, fmt.Sprintf("the kernel's log cannot be read: %v", err))
			case <-again:
				waits = false
			}
		}
	}
}
