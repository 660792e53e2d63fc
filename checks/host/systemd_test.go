package host

import (
	"context"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestNewUnit(t *testing.T) {
	// What systemd 252 said of a kubelet that crashes.
	got := newUnit("kubelet.service", map[string]any{
		"LoadState": "loaded", "ActiveState": "activating", "SubState": "auto-restart", "StateChangeTimestamp": uint64(1_794_000_000_072_324),
		"UnitFileState": "disabled", "Result": "exit-code", "NRestarts": uint32(3), "MainPID": uint32(0), "ExecMainStatus": int32(7),
	})
	want := Unit{
		Name: "kubelet.service", Load: "loaded", Active: "activating", Sub: "auto-restart", Result: "exit-code", Since: time.UnixMicro(1_794_000_000_072_324),
		Restarts: 3, ExitStatus: 7, Enabled: "disabled",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("newUnit (-want +got):\n%s", diff)
	}
	odd := newUnit("x", map[string]any{
		"LoadState": 5, "NRestarts": "many", "ActiveState": strings.Repeat("ä", 500), "StateChangeTimestamp": uint64(math.MaxUint64),
	})
	if odd.Load != "" || odd.Restarts != 0 || len(odd.Active) > 128 || !utf8.ValidString(odd.Active) || !odd.Since.IsZero() {
		t.Errorf("of odd properties: %+v", odd)
	}
}

func TestCompareConns(t *testing.T) {
	well := func() *conn { return &conn{answered: true, took: time.Millisecond, version: "252"} }
	hung := func() *conn { return &conn{hung: true, took: answerPatience, err: syscall.EAGAIN} }
	gone := func() *conn { return &conn{err: syscall.ENOENT} }
	tests := []struct {
		name         string
		private, bus *conn
		want         Systemd
	}{
		{"well", well(), well(), Systemd{Answered: true, Took: time.Millisecond, BusAnswered: true, Version: "252"}},
		{"the bus hangs", well(), hung(), Systemd{Answered: true, Took: time.Millisecond, BusHung: true, Version: "252"}},
		{"no bus", well(), gone(), Systemd{Answered: true, Took: time.Millisecond, Version: "252"}},
		{"not root", gone(), well(), Systemd{Answered: true, Took: time.Millisecond, BusAnswered: true, Version: "252"}},
		{"not root, the bus hangs", gone(), hung(), Systemd{Hung: true, Took: answerPatience, BusHung: true}},
		{"hangs", hung(), hung(), Systemd{Hung: true, Took: answerPatience, BusHung: true}},
		{"nobody", gone(), gone(), Systemd{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, c := compareConns(tt.private, tt.bus)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("compareConns (-want +got):\n%s", diff)
			}
			if c.answered != got.Answered {
				t.Errorf("goes on with a connection without an answer")
			}
		})
	}
}

func FuzzNewUnit(f *testing.F) {
	f.Add("loaded", uint64(90_000_000), uint32(3))
	f.Add("\xff\x1b", uint64(math.MaxUint64), uint32(math.MaxUint32))
	f.Fuzz(func(t *testing.T, text string, n uint64, m uint32) {
		u := newUnit("x.service", map[string]any{
			"ActiveState": text, "StateChangeTimestamp": n, "NRestarts": m, "MainPID": m,
		})
		if u.Restarts < 0 || len(u.Active) > 128 || !utf8.ValidString(u.Active) {
			t.Errorf("newUnit of %q, %d, %d = %+v", text, n, m, u)
		}
	})
}

// TestAskSystemdCutShort wants the end of the command not to count as a hang, and the socket to be named once.
func TestAskSystemdCutShort(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"run/systemd/system", "run/dbus"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(root, "run/systemd/private")
	if _, err := AskSystemd(t.Context(), root, nil, nil); err == nil || strings.Count(err.Error(), socket) != 1 {
		t.Errorf("without a socket: %v", err)
	}
	mute, err := net.Listen("unix", socket) // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := mute.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1)) // it is asking
		}
		cancel()
	}()
	if s, err := AskSystemd(ctx, root, nil, nil); err == nil || s.Hung {
		t.Errorf("cut short: %+v, %v; want an error", s, err)
	}
}

// TestIdleness holds the units that a host may have for one purpose, the one that it uses first.
func TestIdleness(t *testing.T) {
	units := []Unit{
		{Load: "loaded", Active: "active"},
		{Load: "loaded", Active: "failed", Enabled: "enabled"},
		{Load: "loaded", Active: "inactive", Enabled: "enabled"},
		{Load: "loaded", Active: "inactive", Enabled: "disabled"},
		{Load: "masked", Active: "inactive"},
	}
	for i, u := range units {
		if got := u.idleness(); got != i {
			t.Errorf("%+v ranks %d, want %d", u, got, i)
		}
	}
	if again := (&Unit{Load: "loaded", Active: "activating"}).idleness(); again != 0 {
		t.Errorf("one that is being restarted ranks %d", again)
	}
}
