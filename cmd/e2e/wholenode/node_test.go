//go:build e2e

package wholenode

import (
	"strings"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// TestEndToEndNode uses one node: each test leaves it as it was, but for the agent's, which comes last.
func TestEndToEndNode(t *testing.T) {
	n := e2etest.BootNode(t)
	t.Run("damaged configuration", func(t *testing.T) { badConfig(t, n) })
	t.Run("watchdog", func(t *testing.T) { watchdogEnds(t, n) })
	t.Run("documents", func(t *testing.T) { documents(t, n) })
	t.Run("slices", func(t *testing.T) { slicesGo(t, n) })
	t.Run("bundle", func(t *testing.T) { packNode(t, n) })
	t.Run("agent", func(t *testing.T) { runAgent(t, n) })
}

// badConfig has a containerd that ends with an error in its configuration, which systemd starts again and again.
func badConfig(t *testing.T, n e2etest.Node) {
	n.Sh(t, "cp /etc/containerd/config.toml /root/good.toml; echo 'foo = [' >> /etc/containerd/config.toml")
	n.Sh(t, "systemctl restart containerd || true")
	out := n.Sh(t, "kdiag pleg; echo exit code $?")
	n.Sh(t, "cp /root/good.toml /etc/containerd/config.toml; systemctl reset-failed containerd")
	n.Sh(t, "systemctl start containerd")
	for _, want := range []string{"RuntimeDown", "failed to load TOML", "unterminated array", "exit code 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

// watchdogEnds has systemd's watchdog end a process in the kubelet's place, which writes a kubelet's goroutines as Go
// does at SIGABRT.
func watchdogEnds(t *testing.T, n e2etest.Node) {
	dump := e2etest.Read(t, "../../../checks/stacks/testdata/dumps/kubelet-pleg.txt")
	n.Write(t, "root/dump", "SIGABRT: abort\nPC=0x47c6e1 m=0 sigcode=0\n\n"+dump)
	n.Write(t, "etc/systemd/system/kubelet.service.d/watchdog.conf", `[Unit]
StartLimitIntervalSec=0
[Service]
Type=simple
ExecStart=
ExecStart=/bin/bash -c 'trap "cat /root/dump >&2; exit 134" ABRT; sleep infinity & wait'
WatchdogSec=200ms
Restart=always
RestartSec=100ms
`)
	n.Sh(t, "systemctl daemon-reload; systemctl restart kubelet")
	n.Await(t, `test "$(systemctl show -P NRestarts kubelet)" -ge 4`)
	out := n.Sh(t, "kdiag pleg; kdiag journal; true")
	n.Sh(t, "rm -r /etc/systemd/system/kubelet.service.d; systemctl daemon-reload; systemctl stop kubelet")
	n.Sh(t, "journalctl --rotate --vacuum-time=1s; systemctl start kubelet")
	n.AwaitKubelet(t)
	for _, want := range []string{
		"KubeletCrashLooping", "watchdog killed it", "stood still; its goroutine 411: ",
		" UTC: its goroutine 411: ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}
