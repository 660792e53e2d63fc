//go:build e2e

package e2etest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// The unit of a kubelet in a box: kdiag's own syncLoop, under the kubelet's name. It is started again whenever it ends.
const kubeletUnit = `[Unit]
Description=Kubernetes Kubelet
StartLimitIntervalSec=0
[Service]
EnvironmentFile=-/etc/default/kubelet
ExecStart=/usr/local/bin/kubelet syncloop --config /var/lib/kubelet/config.yaml \
  --root-dir /var/lib/kubelet $KUBELET_ARGS
Restart=always
RestartSec=100ms
[Install]
WantedBy=multi-user.target
`

// kubeletConfig lets the syncLoop serve at one port what a kubelet serves at three. It has no TLS, so kdiag is let in
// at the one that is read only.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: systemd
staticPodPath: /etc/kubernetes/manifests
port: %[1]d
healthzPort: %[1]d
readOnlyPort: %[1]d
`

// A Node is a whole node, with a kubelet.
type Node struct {
	Box *nodebox.Box
}

// BootNode boots a node in a box and waits until its kubelet is at work.
func BootNode(t *testing.T) Node {
	t.Helper()
	box := NewBox(t)
	n := Node{box}
	bin := filepath.Join(box.Root(), "usr/local/bin")
	Must(t, os.Link(filepath.Join(bin, "kdiag"), filepath.Join(bin, "kubelet")))
	n.Write(t, "etc/systemd/system/kubelet.service", kubeletUnit)
	n.Write(t, "etc/systemd/system/containerd.service.d/soon.conf",
		"[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n")
	n.Write(t, "etc/cni/net.d/10-none.conflist", `{"cniVersion":"0.4.0","name":"none","plugins":[{"type":"loopback"}]}`)
	n.Write(t, "opt/cni/bin/loopback", "#!/bin/sh\n")
	runtime := Read(t, filepath.Join(box.Root(), "etc/containerd/config.toml"))
	n.Write(t, "etc/containerd/config.toml", runtime+systemdCgroup)
	Must(t, os.MkdirAll(filepath.Join(box.Root(), "etc/kubernetes/manifests"), 0o755))
	n.Write(t, "var/lib/kubelet/config.yaml", fmt.Sprintf(kubeletConfig, FreePort(t)))
	box.Boot(t)
	n.Sh(t, "systemctl enable --now kubelet")
	n.AwaitKubelet(t)
	n.Await(t, "kdiag node -o json | grep 'the last good relist began'") // PLEG's first
	return n
}

// Place is where kdiag runs in the node.
func (n Node) Place() Place {
	return Place{
		Program: "/usr/local/bin/kdiag", Limits: Patient,
		Inside: []string{
			"nsenter", "--target", strconv.Itoa(n.Box.Leader()), "--mount", "--uts", "--ipc", "--net", "--pid",
			"--cgroup", "--",
		},
		Acts: []Act{
			{checks.ActionRestartRuntime, n.restart("containerd")}, {checks.ActionRestartKubelet, n.restart("kubelet")},
		},
	}
}

func (n Node) restart(unit string) func(context.Context, checks.Cause) error {
	return func(ctx context.Context, _ checks.Cause) error {
		_, err := n.Box.Exec(ctx, "systemctl", "restart", unit)
		return err
	}
}

// FreePort returns a port of the loopback at which nobody listens. A box shares the network.
func FreePort(t *testing.T) int {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	defer lis.Close()
	return lis.Addr().(*net.TCPAddr).Port
}

// Write writes a file that only root may read but where it is a program.
func (n Node) Write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(n.Box.Root(), name)
	Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Must(t, os.WriteFile(path, []byte(content), 0o755))
}

// Sh runs a command of a shell in the node, also when the test ends.
func (n Node) Sh(t *testing.T, command string) string {
	t.Helper()
	out, err := n.Box.Exec(context.Background(), "sh", "-c", command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Await repeats a command until it succeeds.
func (n Node) Await(t *testing.T, command string) {
	t.Helper()
	n.Sh(t, "for i in $(seq 3000); do out=$( { "+command+"; } 2>&1 ) && exit; sleep 0.1; done; echo \"$out\"; exit 1")
}

// AwaitKubelet waits until the kubelet that was started last is at work.
func (n Node) AwaitKubelet(t *testing.T) {
	t.Helper()
	n.Await(t, "journalctl _SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value kubelet) | "+
		"grep 'Starting kubelet main sync loop' || { journalctl -n 5 -u kubelet >&2; false; }")
}

// systemdCgroup makes containerd 1 have systemd make the control groups of containers.
const systemdCgroup = `[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
`
