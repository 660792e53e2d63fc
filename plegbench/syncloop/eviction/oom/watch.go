// Package oom watches the kernel's log for processes that were killed for want of memory, and tells of those that were
// killed because the whole system had none left (pkg/kubelet/oom upstream). That a container reached its own limit is told
// by the runtime: its reason is OOMKilled.
package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// longestRecord is CONSOLE_EXT_LOG_MAX of the kernel, in bytes. A read returns one record and fails if it does not fit.
const longestRecord = 8192

// Config says what to watch.
type Config struct {
	Kmsg     string // "" means /dev/kmsg
	Node     string // the node's name, for events
	Recorder record.EventRecorder
	Log      logr.Logger
	Metrics  *metrics.Metrics
	Report   func(Kill) // is called for each kill, those for a container's limit too; may be nil
}

// Watch reports what the kernel writes from now on, until ctx ends. It returns an error if the log cannot be read.
func Watch(ctx context.Context, cfg Config) error {
	if cfg.Kmsg == "" {
		cfg.Kmsg = "/dev/kmsg"
	}
	// Without blocking, so that a deadline can end the read.
	f, err := os.OpenFile(cfg.Kmsg, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening the kernel's log: %w", err)
	}
	defer f.Close() // nothing was written
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("skipping what the kernel's log %s has: %w", cfg.Kmsg, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) }) // an error leaves nothing to end
	defer stop()
	if err := watch(f, cfg); ctx.Err() == nil {
		cfg.Log.Error(nil, "Unexpectedly stopped receiving OOM notifications")
		return fmt.Errorf("reading the kernel's log %s: %w", cfg.Kmsg, err)
	}
	return nil
}

// watch reads records until that fails. Each read gives one.
func watch(r io.Reader, cfg Config) error {
	var p parser
	buf := make([]byte, longestRecord)
	for {
		n, err := r.Read(buf)
		switch {
		case errors.Is(err, unix.EPIPE):
			continue // records were overwritten before they were read; the next read goes on after them
		case err != nil:
			return err
		}
		message, err := parseRecord(string(buf[:n]))
		if err != nil {
			cfg.Log.V(2).Info("Unreadable record in the kernel's log", "err", err)
			continue
		}
		if kill, ok := p.line(message); ok {
			tell(cfg, kill)
		}
	}
}

func tell(cfg Config, kill Kill) {
	if cfg.Report != nil {
		cfg.Report(kill)
	}
	if !kill.Global() {
		return
	}
	cfg.Log.V(1).Info("Got sys oom event", "event", kill)
	cfg.Metrics.OOMEvents.Inc()
	message := "System OOM encountered"
	if kill.Process != "" && kill.PID != 0 {
		message = fmt.Sprintf("%s, victim process: %s, pid: %d", message, kill.Process, kill.PID)
	}
	node := &v1.ObjectReference{Kind: "Node", Name: cfg.Node, UID: types.UID(cfg.Node)}
	cfg.Recorder.Event(node, v1.EventTypeWarning, "SystemOOM", message)
}
