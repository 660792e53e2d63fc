//go:build e2e

package wholenode

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal"
)

// replay writes what a kubelet writes: it starts, syncs, and while /run/frozen is there its relist is stuck, so that it
// skips. Its last good relist is then three minutes ago, to save the test that time. It goes on when it is well again.
const replay = `
line() {
  printf -v day '%(%m%d %H:%M:%S)T' "${now%??????}"
  printf '%s%s.%s %7d %s] %s\n' "$1" "$day" "${now: -6}" $$ "$2" "$3"
}
tick() { now=${EPOCHREALTIME/./}; }
tick; line I server.go:527 '"Kubelet version" kubeletVersion="v1.36.3"'
tick; line I kubelet.go:2637 '"Starting kubelet main sync loop"'
until [ -e /run/frozen ]; do sleep 0.1; done
tick; last=$((now - 181000000))
while [ -e /run/frozen ]; do
  tick; age=$((now - last))
  printf -v ago '%dm%d.%06ds' $((age / 60000000)) $((age / 1000000 % 60)) $((age % 1000000))
  line E kubelet.go:2661 "\"Skipping pod synchronization\" err=\"[container runtime is down, PLEG is not healthy: pleg "\
"was last seen active $ago ago; threshold is 3m0s]\""
  sleep 0.4
done
tick; line I kubelet.go:2566 '"SyncLoop (PLEG): event for pod" pod="default/a" event={"ID":"3d8f","Type":"ContainerStarted"}'
sleep infinity
`

const replayUnit = `[Unit]
Description=Kubernetes Kubelet
[Service]
ExecStart=/bin/bash /usr/local/bin/replay
SyslogIdentifier=kubelet
`

// TestEndToEndJournal freezes the containerd of a whole node while a replayed kubelet fills the journal, and asks
// kdiag: on the node while it lasts and afterwards, and from outside with the node switched off.
func TestEndToEndJournal(t *testing.T) {
	n := e2etest.Node{Box: e2etest.NewBox(t)}
	logs := filepath.Join(n.Box.Root(), "var", "log", "journal")
	n.Write(t, "usr/local/bin/replay", replay)
	n.Write(t, "etc/systemd/system/kubelet.service", replayUnit)
	n.Box.Boot(t)
	t.Run("stacks", func(t *testing.T) { stacksInJournal(t, n) })
	ask := func() *journal.Report {
		o := e2etest.Outcome{Stdout: n.Sh(t, "kdiag journal -o json || true")}
		return e2etest.Decode[journal.Report](t, o)
	}
	outside := func(args ...string) *journal.Report {
		o := e2etest.Kdiag(t.Context(), t, append([]string{"journal", "-o", "json"}, args...)...)
		return e2etest.Decode[journal.Report](t, o)
	}
	records := func(text string) { n.Await(t, "journalctl -u kubelet | grep -F '"+text+"'") }

	n.Sh(t, "systemctl start kubelet")
	records("Starting kubelet main sync loop")
	n.Sh(t, "systemctl kill -s STOP containerd && touch /run/frozen")
	const unhealthy = "journalctl -u kubelet -o cat | grep -c 'PLEG is not healthy'"
	n.Await(t, "test $("+unhealthy+") -ge 5")
	out := n.Sh(t, "kdiag pleg -o json --rpc-timeout 1s || true")
	if !strings.Contains(out, `"RuntimeHung"`) || !strings.Contains(out, "PLEG is not healthy") {
		t.Errorf("kdiag pleg during the incident:\n%s", out)
	}
	if live := ask().Incidents(); len(live) != 1 || live[0].Recovered {
		t.Errorf("during the incident: %+v, want one incident that has not recovered", live)
	}
	n.Sh(t, "rm /run/frozen && systemctl kill -s CONT containerd")
	records("SyncLoop (PLEG)")

	lines := n.Sh(t, unhealthy)
	check := func(where string, r *journal.Report) {
		t.Helper()
		all := r.Incidents()
		if len(all) != 1 || len(r.Episodes) != 1 || fmt.Sprint(all[0].Lines) != lines || !all[0].Recovered ||
			len(all[0].Stalls) > 1 {
			t.Errorf("%s: want %s records of one stall, recovered: %+v", where, lines, r.Episodes)
		}
	}
	after := ask()
	check("on the node", after)
	if !slices.ContainsFunc(after.Incidents(), func(e journal.Episode) bool {
		return slices.ContainsFunc(e.Causes, func(c journal.Cause) bool {
			return c.Code == "RuntimeHung" && strings.Contains(strings.Join(c.Evidence.For, "\n"),
				"systemd sent SIGSTOP to containerd")
		})
	}) {
		t.Errorf("no cause names the signal: %+v", after.Incidents())
	}

	e2etest.Must(t, n.Box.Poweroff(t.Context()))
	check("from outside", outside("--root", n.Box.Root()))
	check("by directory", outside("--directory", logs))
}

// stacksInJournal captures dumps where containerd logs to journald and cannot make its file. journald splits its dump
// into pieces of 48 KiB.
func stacksInJournal(t *testing.T, n e2etest.Node) {
	pods, err := nodebox.RunPods(t.Context(), n.Box.Endpoint(),
		nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	e2etest.Must(t, err)
	const many = 300
	for range many { // each has goroutines in containerd
		conn, err := net.Dial("unix", strings.TrimPrefix(n.Box.Endpoint(), "unix://"))
		e2etest.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	n.Sh(t, "mkdir /tmp/containerd.$(pidof containerd).stacks.log")
	inside := n.Place().Ask(t, "stacks", "--capture", "--shim", pods[0].ID, "-o", "json", "--runtime-endpoint",
		"unix:///run/containerd/containerd.sock")
	var got []string
	for _, s := range e2etest.Decode[checks.StacksReport](t, inside).Sources {
		got = append(got, fmt.Sprintf("%s from %s, many: %v%s%s", s.Process, s.Name, s.Goroutines > many, s.Problem, s.Cut))
	}
	want := []string{
		"containerd from the journal, many: true", "containerd-shim-runc-v2 from the journal, many: false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, inside.Stderr)
	}
}
