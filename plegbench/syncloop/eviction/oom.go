package eviction

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// WatchOOM reports the processes that the kernel kills from now on because the whole system is out of memory, until
// ctx ends (pkg/kubelet/oom upstream). Containers that reach their own limit are reported by the runtime, with the
// reason OOMKilled. kmsg is /dev/kmsg. It returns an error if the kernel's log cannot be read.
func (m *Manager) WatchOOM(ctx context.Context, kmsg string) error {
	return watchKills(ctx, kmsg, m.reportKill)
}

func (m *Manager) reportKill(k kill) {
	if !k.global() {
		return
	}
	m.cfg.Log.V(1).Info("Got sys oom event", "event", k)
	m.cfg.Metrics.OOMEvents.Inc()
	m.cfg.Recorder.Eventf(m.node, v1.EventTypeWarning, "SystemOOM",
		"System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID)
}

// A kill is a process that the kernel killed because memory ran out.
type kill struct {
	Memcg   string // the cgroup whose limit was reached; empty or / when the whole system was out of memory
	Process string // name
	PID     int
}

func (k kill) global() bool { return k.Memcg == "" || k.Memcg == "/" }

// longestRecord is CONSOLE_EXT_LOG_MAX of the kernel, in bytes. A read returns one record and fails if it does not fit.
const longestRecord = 8192

// watchKills reads the records that are added to the kernel's log until ctx ends.
func watchKills(ctx context.Context, kmsg string, found func(kill)) error {
	f, err := os.OpenFile(kmsg, os.O_RDONLY|unix.O_NONBLOCK, 0) // non-blocking, so that a deadline can end the read
	if err != nil {
		return fmt.Errorf("opening the kernel's log: %w", err)
	}
	defer f.Close() // nothing was written
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("skipping the present records of the kernel's log %s: %w", kmsg, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, longestRecord)
	for {
		n, err := f.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EPIPE):
			continue // records were overwritten before they were read; the next read returns the one after them
		case err != nil:
			return fmt.Errorf("reading the kernel's log %s: %w", kmsg, err)
		}
		if k, ok := parseKill(string(buf[:n])); ok {
			found(k)
		}
	}
}

var oomKill = lazyregexp.New(
	`^oom-kill:constraint=.*?,(?:oom_memcg=(.*),|global_oom,)task_memcg=.*,task=(.*),pid=([0-9]+),uid=`)

// parseKill reads a record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg) as Linux writes it for each kill since
// 5.0:
//
//	6,2,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ID,mems_allowed=0,
//	oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c,task=node,pid=42,uid=0
//
// with global_oom in the place of oom_memcg=PATH when the system is out of memory.
func parseKill(record string) (k kill, ok bool) {
	_, message, _ := strings.Cut(record, ";")
	m := oomKill.FindStringSubmatch(message)
	if m == nil {
		return kill{}, false
	}
	pid, err := strconv.Atoi(m[3])
	return kill{m[1], m[2], pid}, err == nil
}
