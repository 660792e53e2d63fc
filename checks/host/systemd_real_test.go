package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kdiag/kdiag/plegbench/nodebox"
)

// askSystemdAsJSON is what a copy of this binary does in a node.
func askSystemdAsJSON() {
	s, err := AskSystemd(context.Background(), "/", []string{"k3s.service", "kubelet.service"}, []string{"crio.service", "containerd.service"})
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
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
WatchdogSec=90
TasksMax=4000
LimitNOFILE=123456
[Install]
WantedBy=multi-user.target
`

// TestAskSystemdReal asks the systemd of a whole node: while its kubelet crashes, while the message bus is stopped, and
// while systemd is.
func TestAskSystemdReal(t *testing.T) {
	t.Parallel() // it boots a node
	if what := nodebox.Missing(true); what != "" {
		unavailable(t, "needs %s", what)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	box, err := nodebox.NewBox(t.Context(), filepath.Join(cache, "kdiag", "nodebox"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	if err := os.WriteFile(filepath.Join(box.Root(), "etc/systemd/system/kubelet.service"), []byte(crashingUnit), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := box.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := func(args ...string) {
		t.Helper()
		if out, err := box.Exec(t.Context(), args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := box.CopyIn(self, "/usr/local/bin/asker"); err != nil {
		t.Fatal(err)
	}
	// systemd's own socket wants to know the process that asks, so it has to be in the box.
	ask := func() Systemd {
		t.Helper()
		out, err := box.Exec(t.Context(), "/usr/local/bin/asker", "ask-systemd")
		if err != nil {
			t.Fatalf("asking: %v\n%s", err, out)
		}
		var s Systemd
		if err := json.Unmarshal(out, &s); err != nil {
			t.Fatalf("%v in:\n%s", err, out)
		}
		return s
	}

	in("systemctl", "start", "kubelet")
	s := ask()
	for range 1000 { // until systemd has come up and the kubelet has crashed a few times
		if s.BusAnswered && s.Kubelet != nil && s.Kubelet.Restarts >= 2 && s.Kubelet.Sub == "auto-restart" {
			break
		}
		time.Sleep(50 * time.Millisecond)
		s = ask()
	}
	if !s.Answered || s.Hung || !s.BusAnswered || s.BusHung || s.Version == "" || s.State == "" || s.Units < 50 || !s.Counted || s.Inactive == 0 {
		t.Errorf("of a systemd that is well: %+v", s)
	}
	if s.Kubelet == nil || s.Runtime == nil {
		t.Fatalf("kubelet %v, runtime %v", s.Kubelet, s.Runtime)
	}
	k := *s.Kubelet
	if k.Name != "kubelet.service" || k.Load != "loaded" || k.Active != "activating" || k.Restarts < 2 || k.Result != "exit-code" || k.ExitStatus != 7 ||
		k.Enabled != "disabled" || time.Since(k.Since) > time.Minute {
		t.Errorf("of a kubelet that crashes: %+v", k)
	}
	r := *s.Runtime
	if r.Name != "containerd.service" || r.Active != "active" || r.Sub != "running" || r.MainPID == 0 {
		t.Errorf("of a containerd that runs: %+v", r)
	}
	t.Logf("%+v\n%+v\n%+v", s, k, r)

	in("systemctl", "kill", "--signal=STOP", "dbus.service")
	if s = ask(); !s.Answered || s.Hung || s.BusAnswered || !s.BusHung {
		t.Errorf("with the message bus stopped: %+v", s)
	}
	in("systemctl", "kill", "--signal=CONT", "dbus.service")

	if err := syscall.Kill(box.Leader(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(box.Leader(), syscall.SIGCONT)
	if s = ask(); s.Answered || !s.Hung || s.Took < answerPatience {
		t.Errorf("with systemd stopped: %+v", s)
	}
}

func TestAskSystemdElsewhere(t *testing.T) {
	if _, err := AskSystemd(t.Context(), t.TempDir(), nil, nil); !errors.Is(err, ErrNoSystemd) {
		t.Errorf("on a host without systemd: %v, want %v", err, ErrNoSystemd)
	}
	n := newNode(t)
	n.write("run/systemd/system/x", "")
	if s, err := AskSystemd(t.Context(), n.root, nil, nil); err == nil || s.Hung || s.Answered {
		t.Errorf("with nobody on its sockets: %+v, %v; want an error", s, err)
	}
}
