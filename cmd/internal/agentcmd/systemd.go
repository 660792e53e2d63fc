package agentcmd

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// watchdog tells systemd that the loop runs, as long as it does.
func (s *service) watchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return
	}
	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.alive() {
				notify(daemon.SdNotifyWatchdog)
			}
		case <-ctx.Done():
			return
		}
	}
}

// notify tells systemd, where it waits for that.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }

// newLog returns the agent's log, on standard error. For journald each line begins with its priority.
func newLog(env cli.Env) *slog.Logger {
	if env.Getenv("JOURNAL_STREAM") == "" {
		return slog.New(slog.NewTextHandler(env.Err, nil))
	}
	return slog.New(slog.NewTextHandler(journald{env.Err}, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{} // journald has it
			}
			return a
		},
	}))
}

// journald writes a line of slog that begins with its level as sd-daemon(3) has it: <3> for errors. A handler writes
// each line at once.
type journald struct{ io.Writer }

var priorities = strings.NewReplacer("level=ERROR ", "<3>", "level=WARN ", "<4>", "level=INFO ", "<6>")

func (w journald) Write(line []byte) (int, error) {
	level, rest, _ := bytes.Cut(line, []byte(" "))
	_, err := w.Writer.Write(append([]byte(priorities.Replace(string(level)+" ")), rest...))
	return len(line), err
}
