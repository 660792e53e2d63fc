package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCompareConns(t *testing.T) {
	well := &conn{answered: true, took: time.Millisecond, version: "252"}
	hung := &conn{hung: true, took: answerTimeout, err: syscall.EAGAIN}
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
		{"hangs", hung, hung, on(Systemd{Hung: true, Took: answerTimeout}, false, true)},
		{"none", gone, gone, Systemd{}},
	} {
		got, c := compareConns(tt.private, tt.bus)
		equal(t, tt.name, tt.want, got)
		equal(t, tt.name+": the connection", got.Answered, c.answered)
	}
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
