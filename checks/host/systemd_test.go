package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kdiag/kdiag/plegbench/nodebox"
)

func TestNewUnit(t *testing.T) {
	// Recorded of a kubelet that crashes, under systemd 252.
	equal(t, "newUnit", Unit{
		Name: "kubelet.service", Load: "loaded", Active: "activating", Sub: "auto-restart", Result: "exit-code",
		Since: time.UnixMicro(1_794_000_000_072_324), Restarts: 3, ExitStatus: 7, Enabled: "disabled",
	}, newUnit("kubelet.service", map[string]any{
		"LoadState": "loaded", "ActiveState": "activating", "SubState": "auto-restart", "UnitFileState": "disabled",
		"StateChangeTimestamp": uint64(1_794_000_000_072_324), "Result": "exit-code", "NRestarts": uint32(3),
		"ExecMainStatus": int32(7),
	}))
}

func TestCompareConns(t *testing.T) {
	well := &conn{answered: true, took: time.Millisecond, version: "252"}
	hung := &conn{hung: true, took: answerPatience, err: syscall.EAGAIN}
	gone := &conn{err: syscall.ENOENT}
	answered := Systemd{Answered: true, Took: time.Millisecond, Version: "252"}
	on := func(s Systemd, answered, hung bool) Systemd {
		s.BusAnswered, s.BusHung = answered, hung
		return s
	}
	for _, tt := range []struct {
		name         string
		private, bus *conn
		want         Systemd
	}{
		{"well", well, well, on(answered, true, false)},
		{"the bus hangs", well, hung, on(answered, false, true)},
		{"no bus", well, gone, answered},
		{"not root", gone, well, on(answered, true, false)},
		{"not root, the bus hangs", gone, hung, on(Systemd{Hung: true, Took: answerPatience}, false, true)},
		{"hangs", hung, hung, on(Systemd{Hung: true, Took: answerPatience}, false, true)},
		{"none", gone, gone, Systemd{}},
	} {
		got, c := compareConns(tt.private, tt.bus)
		equal(t, tt.name, tt.want, got)
		equal(t, tt.name+": the connection", got.Answered, c.answered)
	}
}

func FuzzNewUnit(f *testing.F) {
	f.Add("loaded", uint64(90_000_000), uint32(3))
	f.Add("\xff\x1b", uint64(math.MaxUint64), uint32(math.MaxUint32))
	f.Add(strings.Repeat("ä", 500), uint64(0), uint32(0))
	f.Fuzz(func(t *testing.T, text string, n uint64, m uint32) {
		u := newUnit("x.service", map[string]any{
			"LoadState": m, "ActiveState": text, "StateChangeTimestamp": n, "NRestarts": m, "MainPID": text,
		})
		if u.Load != "" || u.Restarts < 0 || len(u.Active) > 128 || !utf8.ValidString(u.Active) {
			t.Errorf("newUnit of %q, %d, %d = %+v", text, n, m, u)
		}
	})
}

// TestAskSystemdCutShort checks that the end of the command does not count as a hang.
func TestAskSystemdCutShort(t *testing.T) {
	n := newNode(t)
	if _, err := AskSystemd(t.Context(), n.root, nil, nil); !errors.Is(err, ErrNoSystemd) {
		t.Errorf("on a host without systemd: %v, want %v", err, ErrNoSystemd)
	}
	n.write("run/systemd/system/x", "", "run/dbus/x", "")
	socket := filepath.Join(n.root, "run/systemd/private")
	s, err := AskSystemd(t.Context(), n.root, nil, nil)
	if err == nil || strings.Count(err.Error(), socket) != 1 || s.Hung || s.Answered {
		t.Errorf("without sockets: %+v, %v", s, err)
	}
	mute, err := net.Listen("unix", socket) // accepts and never answers
	must(t, err)
	defer mute.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := mute.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1)) // it is asking
		}
		cancel()
	}()
	if s, err := AskSystemd(ctx, n.root, nil, nil); err == nil || s.Hung {
		t.Errorf("cut short: %+v, %v; want an error", s, err)
	}
}

// TestIdleness ranks the units that a host may have for one purpose, the one that it uses first.
func TestIdleness(t *testing.T) {
	for i, u := range []Unit{
		{Load: "loaded", Active: "activating"},
		{Load: "loaded", Active: "failed", Enabled: "enabled"},
		{Load: "loaded", Active: "inactive", Enabled: "enabled"},
		{Load: "loaded", Active: "inactive", Enabled: "disabled"},
		{Load: "masked", Active: "inactive"},
	} {
		equal(t, fmt.Sprintf("%+v", u), i, u.idleness())
	}
}

// askSystemdAsJSON is what a copy of this binary does in a node.
func askSystemdAsJSON() {
	s, err := AskSystemd(context.Background(), "/",
		[]string{"k3s.service", "kubelet.service"}, []string{"crio.service", "containerd.service"})
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(s)
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
}

const crashingUnit = `[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'exit 7'
Restart=always
RestartSec=100ms
Environment=TOKEN=secret
[Install]
WantedBy=multi-user.target
`

// TestAskSystemdReal asks the systemd of a whole node: while its kubelet crashes, while the message bus is stopped, and
// while systemd is.
func TestAskSystemdReal(t *testing.T) {
	t.Parallel() // it boots a node
	if what := nodebox.Missing(true); what != "" {
		nodebox.Need(t, "needs "+what)
	}
	cache, err := os.UserCacheDir()
	must(t, err)
	box, err := nodebox.NewBox(t.Context(), filepath.Join(cache, "kdiag", "nodebox"))
	must(t, err)
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	unit := filepath.Join(box.Root(), "etc/systemd/system/kubelet.service")
	must(t, os.WriteFile(unit, []byte(crashingUnit), 0o644))
	must(t, box.Boot(t.Context()))
	in := func(args ...string) []byte {
		t.Helper()
		out, err := box.Exec(t.Context(), args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	self, err := os.Executable()
	must(t, err)
	must(t, box.CopyIn(self, "/usr/local/bin/asker"))
	// systemd's own socket checks the process that asks, so it has to be in the box.
	ask := func() (s Systemd) {
		t.Helper()
		out := in("/usr/local/bin/asker", "ask-systemd") // what follows the document is of the coverage
		must(t, json.NewDecoder(bytes.NewReader(out)).Decode(&s))
		return s
	}
	in("systemctl", "start", "kubelet")
	var s Systemd
	eventually(t, "systemd has come up and the kubelet has crashed a few times", func() bool {
		s = ask()
		return s.BusAnswered && s.Kubelet != nil && s.Kubelet.Restarts >= 2 && s.Kubelet.Sub == "auto-restart"
	})
	if !s.Answered || s.Hung || s.BusHung || s.Version == "" || s.State == "" || s.Units < 50 || !s.Counted ||
		s.Inactive == 0 || s.Runtime == nil {
		t.Fatalf("of a systemd that is well: %+v", s)
	}
	if k := s.Kubelet; k.Restarts < 2 || time.Since(k.Since) > time.Minute {
		t.Errorf("of a kubelet that crashes: %+v", k)
	}
	s.Kubelet.Restarts, s.Kubelet.Since, s.Runtime.Since = 0, time.Time{}, time.Time{}
	equal(t, "a kubelet that crashes", &Unit{
		Name: "kubelet.service", Load: "loaded", Active: "activating", Sub: "auto-restart", Result: "exit-code",
		ExitStatus: 7, Enabled: "disabled",
	}, s.Kubelet)
	equal(t, "a containerd that runs", &Unit{
		Name: "containerd.service", Load: "loaded", Active: "active", Sub: "running", Result: "success",
		Enabled: "enabled",
	}, s.Runtime)

	in("systemctl", "kill", "--signal=STOP", "dbus.service")
	if s = ask(); !s.Answered || s.Hung || s.BusAnswered || !s.BusHung {
		t.Errorf("with the message bus stopped: %+v", s)
	}
	in("systemctl", "kill", "--signal=CONT", "dbus.service")
	must(t, syscall.Kill(box.Leader(), syscall.SIGSTOP))
	defer syscall.Kill(box.Leader(), syscall.SIGCONT)
	if s = ask(); s.Answered || !s.Hung || s.Took < answerPatience {
		t.Errorf("with systemd stopped: %+v", s)
	}
}
