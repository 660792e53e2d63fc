package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/nodebox"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// A device gives one answer for each read.
type device []struct {
	record string
	err    error
}

func (d *device) Read(b []byte) (int, error) {
	if len(*d) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	next := (*d)[0]
	*d = (*d)[1:]
	return copy(b, next.record), next.err
}

func TestWatchTellsOfTheSystemOnly(t *testing.T) {
	recorder := record.NewFakeRecorder(10)
	var kills []Kill
	cfg := Config{
		Node: "n", Recorder: recorder, Log: logr.Discard(), Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
		Report: func(k Kill) { kills = append(kills, k) },
	}
	lost := unix.EPIPE
	err := watch(&device{
		{"4,1,1,-;" + asked, nil},
		{"6,2,2,-;" + inContainer, nil},
		{"broken", nil},
		{"", lost},
		{"4,9,3,-;" + asked, nil},
		{"6,10,4,-;" + global, nil},
	}, cfg)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("watch ended with %v", err)
	}
	if len(kills) != 2 || kills[0].Global() || !kills[1].Global() {
		t.Errorf("kills: %+v", kills)
	}
	close(recorder.Events)
	var events []string
	for e := range recorder.Events {
		events = append(events, e)
	}
	if diff := cmp.Diff([]string{"Warning SystemOOM System OOM encountered, victim process: my, app, pid: 77"}, events); diff != "" {
		t.Error(diff)
	}
	var counted dto.Metric
	if err := cfg.Metrics.OOMEvents.Write(&counted); err != nil || counted.GetCounter().GetValue() != 1 {
		t.Errorf("counted %v, %v", &counted, err)
	}
}

func TestWatchWithoutALog(t *testing.T) {
	if err := Watch(t.Context(), Config{Kmsg: filepath.Join(t.TempDir(), "none"), Log: logr.Discard()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	empty := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Watch(t.Context(), Config{Kmsg: empty, Log: logr.Discard()}); !errors.Is(err, io.EOF) {
		t.Errorf("error %v for a log that ends", err)
	}
}

// patience is for what takes a moment on a machine that is not busy.
const patience = 2 * time.Minute

// A process in a cgroup of its own runs out of memory, and the kernel's log tells.
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
	kills := make(chan Kill, 10)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		ended <- Watch(ctx, Config{
			Recorder: &record.FakeRecorder{}, Log: logr.Discard(), Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
			Report: func(k Kill) {
				select {
				case kills <- k:
				case <-ctx.Done():
				}
			},
		})
	}()
	for { // the watch may not have begun when the first dies
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "echo $$ > "+dir+"/cgroup.procs && head -c 64M /dev/zero | tail -c 48M > /dev/null")
		if err := cmd.Run(); err == nil {
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
					t.Errorf("Watch ended with %v", err)
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
