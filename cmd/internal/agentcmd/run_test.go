package agentcmd

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// lines counts the writes of a log.
type lines []string

func (l *lines) Write(p []byte) (int, error) {
	*l = append(*l, string(bytes.Clone(p)))
	return len(p), nil
}

// TestJournaldPriorities has each record in one write, with its priority, also of a logger that has attributes.
func TestJournaldPriorities(t *testing.T) {
	var got lines
	log := newLog(cli.Env{Err: &got, Getenv: func(string) string { return "8:1" }}, "text", "")
	log.Info("runs", "version", "v1")
	log.With("node", "n").Error("fails")
	want := lines{"<6>msg=runs version=v1\n", "<3>msg=fails node=n\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestLogOfChange reads the JSON line of a change as a collector does.
func TestLogOfChange(t *testing.T) {
	var out bytes.Buffer
	opts := &options{logFormat: "json"}
	env := cli.Env{
		Out: &out, Getenv: func(string) string { return "" },
		Hostname: func() (string, error) { return "Worker-3", nil },
	}
	s := newService(env, opts, newLog(env, opts.logFormat, opts.node(env)))
	at := time.Date(2026, 11, 24, 3, 4, 5, 0, time.UTC)
	s.log.LogAttrs(t.Context(), slog.LevelWarn, "the runtime hangs", s.attributes(checks.Transition{
		At: at, From: checks.CauseClear, To: checks.CauseOnset, Cause: causes.RuntimeHung, Severity: checks.Critical,
		Subject: "containerd.service", Incident: at,
	})...)
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %q", err, out.String())
	}
	if _, err := time.Parse(time.RFC3339Nano, got["timestamp"].(string)); err != nil {
		t.Error(err)
	}
	delete(got, "timestamp")
	want := map[string]any{
		"severity_text": "WARN", "body": "the runtime hangs", "service.name": "kdiag-agent",
		"service.version": cli.Version(), "k8s.node.name": "worker-3", "event.name": "kdiag.transition",
		"kdiag.cause": "RuntimeHung", "kdiag.severity": "critical", "kdiag.from": "clear", "kdiag.to": "onset",
		"kdiag.at": "2026-11-24T03:04:05Z", "kdiag.subject": "containerd.service", "kdiag.caused_by": "",
		"kdiag.incident": "2026-11-24T03:04:05Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
