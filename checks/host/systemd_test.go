package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestHungBus tells a message bus that hangs from a systemd that hangs, of which the bus answers nothing either.
func TestHungBus(t *testing.T) {
	well, hung := &conn{answered: true}, &conn{hung: true}
	bus, _ := compareConns(well, hung)
	equal(t, "the bus", Systemd{Answered: true, BusHung: true}, bus)
	both, _ := compareConns(hung, hung)
	equal(t, "systemd", Systemd{Hung: true, BusHung: true}, both)
}

// TestAskSystemdCutShort checks that the end of the command does not count as a hang.
func TestAskSystemdCutShort(t *testing.T) {
	n := newNode(t)
	if _, err := AskSystemd(t.Context(), n.Root, nil, nil); !errors.Is(err, ErrNoSystemd) {
		t.Errorf("on a host without systemd: %v, want %v", err, ErrNoSystemd)
	}
	n.Write("run/systemd/system/x", "", "run/dbus/x", "")
	socket := filepath.Join(n.Root, "run/systemd/private")
	s, err := AskSystemd(t.Context(), n.Root, nil, nil)
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
	if s, err := AskSystemd(ctx, n.Root, nil, nil); err == nil || s.Hung {
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
