package agentcmd

import (
	"bytes"
	"cmp"
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

// newLog returns the agent's log: text on standard error, in which each line begins with its priority for journald; or
// JSON on standard output, in the names of OpenTelemetry's log data model and semantic conventions.
func newLog(env cli.Env, format, node string) *slog.Logger {
	if format == "json" {
		names := map[string]string{
			slog.TimeKey: "timestamp", slog.LevelKey: "severity_text", slog.MessageKey: "body", "error": "exception.message",
		}
		return slog.New(slog.NewJSONHandler(env.Out, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Value.Kind() == slog.KindDuration {
					a.Value = slog.StringValue(a.Value.Duration().String())
				}
				a.Key = cmp.Or(names[a.Key], a.Key)
				return a
			},
		})).With("service.name", "kdiag-agent", "service.version", cli.Version(), "k8s.node.name", node)
	}
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
