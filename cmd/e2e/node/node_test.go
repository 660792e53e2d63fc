//go:build e2e

// Package node breaks a whole node, with systemd, a runtime and a kubelet, in one way after the other.
package node

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

type place = e2etest.Place

func TestMain(m *testing.M) { nodebox.Main(m) }

// A node is a whole node with methods that break it.
type node struct{ e2etest.Node }

const (
	config     = "var/lib/kubelet/config.yaml"
	kubeletPID = "systemctl show -p MainPID --value kubelet"
)

// TestEndToEndNode breaks one node, first without an API server, and then with one.
func TestEndToEndNode(t *testing.T) {
	n := node{e2etest.BootNode(t)}
	n.place().CheckFile(t, "node.yaml", map[string]e2etest.Maker{
		"nothing":                           noProblems,
		"the runtime was killed four times": n.killRuntime,
		"a stopped kubelet":                 n.stopKubelet,
		"a stopped kubelet, from a pod": func(t *testing.T, at *place) {
			n.fromPod(t, at)
			n.stopKubelet(t, at)
		},
		"another process has the health port":   n.holdHealthPort,
		"another cgroup driver in the settings": n.otherDriver,
		"no pod starts for the cgroup driver":   n.noPodStarts,
		"a stopped systemd":                     n.stopSystemd,
	})
	t.Run("with an API server", n.checkWithAPIServer)
	n.place().CheckFile(t, "crashes.yaml", map[string]e2etest.Maker{
		"a kubelet that ends at each start":           n.crashKubelet(0),
		"a kubelet that systemd does not start again": n.crashKubelet(60),
	})
}

// place is where kdiag runs.
func (n node) place() place {
	at := n.Place()
	at.Shell = n.shell
	return at
}

// noProblems makes no fault, of which kdiag must report no problem.
func noProblems(_ *testing.T, at *place) {
	at.Also = func(t *testing.T, r *checks.Report) {
		if len(r.Problems) > 0 {
			t.Errorf("problems %q", r.Problems)
		}
	}
}

// shell makes a fault with a command of a shell in the node, and undoes it with another.
func (n node) shell(make, undo string) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		t.Cleanup(func() { n.Sh(t, undo) })
		n.Sh(t, make)
	}
}

// rewrite writes a file, and what it held before when the test ends.
func (n node) rewrite(t *testing.T, name string, change func(before string) string) {
	t.Helper()
	before := n.Sh(t, "cat /"+name) + "\n"
	n.Write(t, name, change(before))
	t.Cleanup(func() { n.Write(t, name, before) })
}

// inPod is how a privileged pod with hostPID sees a node: another root, with the host's under /host. Other programs
// than kdiag run outside of it.
const inPod = `
	[ "$1" = /kdiag ] || exec "$@"
	mkdir -p /run/pod && mount -t tmpfs pod /run/pod && cd /run/pod && mkdir dev host proc tmp &&
	mount --rbind / host && mount --rbind /dev dev && mount -t proc proc proc && cp /usr/local/bin/kdiag . &&
	exec chroot . "$@" --host-root /host`

func (n node) fromPod(_ *testing.T, at *place) {
	at.Program = "/kdiag"
	at.Inside = slices.Concat(at.Inside, []string{"unshare", "--mount", "sh", "-c", inPod, "sh"})
}

// killRuntime kills a runtime that systemd starts again: it is well, and its restarts are counted.
func (n node) killRuntime(t *testing.T, _ *place) {
	n.Sh(t, "systemctl restart containerd") // the count begins anew
	for i := range 4 {
		n.Sh(t, "systemctl kill -s KILL containerd")
		n.Await(t, fmt.Sprintf("systemctl show -p NRestarts --value containerd | grep -x %d && "+
			"systemctl is-active containerd", i+1))
	}
}

func (n node) stopKubelet(t *testing.T, at *place) {
	n.AwaitKubelet(t)
	n.shell("systemctl kill -s STOP kubelet", "systemctl kill -s CONT kubelet")(t, at)
	at.Culprit = n.Sh(t, kubeletPID)
}

func (n node) stopSystemd(t *testing.T, _ *place) {
	e2etest.Must(t, syscall.Kill(n.Box.Leader(), syscall.SIGSTOP))
	t.Cleanup(func() { e2etest.Must(t, syscall.Kill(n.Box.Leader(), syscall.SIGCONT)) })
}

// stranger is a program that answers 200 to every request at a port.
const stranger = `use IO::Socket::INET;
my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 5, ReuseAddr => 1) or die;
while (my $c = $l->accept) { sysread $c, my $b, 4096; print $c "HTTP/1.0 200 OK\r\n\r\nok"; close $c }`

// holdHealthPort has another process listen at the kubelet's health port.
func (n node) holdHealthPort(t *testing.T, _ *place) {
	port := e2etest.FreePort(t)
	n.Write(t, "run-stranger.pl", stranger)
	n.shell(fmt.Sprintf("systemd-run --unit stranger perl /run-stranger.pl %d", port),
		"systemctl stop stranger")(t, nil)
	n.Await(t, fmt.Sprintf("perl -MIO::Socket::INET -e 'IO::Socket::INET->new(%q) or die'",
		fmt.Sprintf("127.0.0.1:%d", port)))
	n.rewrite(t, config, func(before string) string {
		return strings.Replace(before, "\nhealthzPort:", fmt.Sprintf("\nhealthzPort: %d #", port), 1)
	})
}

// otherDriver gives the kubelet's settings another cgroup driver than the runtime has.
func (n node) otherDriver(t *testing.T, _ *place) {
	n.rewrite(t, config, func(before string) string {
		return strings.Replace(before, "cgroupDriver: systemd", "cgroupDriver: cgroupfs", 1)
	})
}

const lonePod = `apiVersion: v1
kind: Pod
metadata: {name: lone, namespace: default}
spec:
  hostNetwork: true
  containers: [{name: c, image: %q, command: [sleep, "1000"]}]
`

// noPodStarts has a kubelet run with the other driver, which settings that were mended since do not show.
func (n node) noPodStarts(t *testing.T, at *place) {
	t.Run("start", func(t *testing.T) {
		n.otherDriver(t, at)
		n.Sh(t, "systemctl restart kubelet")
		n.AwaitKubelet(t) // the one before would still start the pod
		n.Write(t, "etc/kubernetes/manifests/lone.yaml", fmt.Sprintf(lonePod, nodebox.ImageBusybox))
		n.Await(t, "journalctl -u containerd | grep 'expected cgroupsPath'")
	})
	t.Cleanup(func() {
		n.Sh(t, "rm /etc/kubernetes/manifests/lone.yaml")
		n.forget(t, "systemctl restart kubelet")
	})
}

// forget removes all records, as the next fault is to be the only one, and runs a command that starts the kubelet.
func (n node) forget(t *testing.T, command string) {
	t.Helper()
	n.Sh(t, "systemctl stop kubelet; journalctl --quiet --rotate --vacuum-size=1; "+command)
	n.AwaitKubelet(t)
}

// crashKubelet lets the kubelet end at each start, for ever, or until systemd gives up after three within so many
// seconds.
func (n node) crashKubelet(seconds int) e2etest.Maker {
	const dropIn = "etc/systemd/system/kubelet.service.d/limit.conf"
	return func(t *testing.T, _ *place) {
		n.Write(t, dropIn, fmt.Sprintf("[Unit]\nStartLimitIntervalSec=%d\nStartLimitBurst=3\n", seconds))
		n.Write(t, "etc/default/kubelet", "KUBELET_ARGS=--config /var/lib/kubelet/none.yaml\n")
		t.Cleanup(func() {
			n.forget(t, "rm /etc/default/kubelet /"+dropIn+"; systemctl daemon-reload; "+
				"systemctl reset-failed kubelet; systemctl start kubelet")
		})
		n.Sh(t, "systemctl daemon-reload; systemctl restart kubelet || true")
		if seconds == 0 {
			n.Await(t, "test $(systemctl show -p NRestarts --value kubelet) -ge 4")
		} else {
			n.Await(t, "systemctl is-failed kubelet")
		}
	}
}
