package kubelet

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestPortHeldByAStranger has the kubelet's ports be held by itself, by another program, and by processes of the
// kubelet's name: one that starts, and a pod's. The 200 of a stranger is not the kubelet's health, and it is sent no
// token.
func TestPortHeldByAStranger(t *testing.T) {
	n := newNode(t, newIssuer(t))
	n.given.Token, n.settings.PID = "secret", 812
	listens := func(zero, address string) string {
		_, port, err := net.SplitHostPort(address)
		must(t, err)
		number, err := strconv.Atoi(port)
		must(t, err)
		return fmt.Sprintf("  sl  local_address\n  0: %s:%04X %s:0000 0A 0:0 0:0 0 0 0 77\n", zero, number, zero)
	}
	for _, tc := range []struct {
		pid, comm, mounts string
		stranger          bool
	}{
		{"812", "kubelet", "mnt:[1]", false},
		{"900", "kubelet", "mnt:[1]", false},
		{"900", "kubelet", "mnt:[2]", true},
		{"900", "python3", "mnt:[1]", true},
	} {
		h := testkit.NewTree(t)
		process(h, "812", "kubelet", "kubelet")
		process(h, tc.pid, tc.comm, tc.comm)
		h.Write("proc/812/net/tcp", listens("00000000", n.settings.HealthzAddress), "proc/812/fd/1", "",
			"proc/812/net/tcp6", listens(strings.Repeat("0", 32), n.settings.Address))
		h.Link("proc/"+tc.pid+"/fd/3", "socket:[77]")
		h.Link("proc/"+tc.pid+"/ns/mnt", tc.mounts)
		if tc.pid != "812" {
			h.Link("proc/812/ns/mnt", "mnt:[1]")
		}
		n.requests.Store(0)
		got, err := AskHealth(t.Context(), h.Root, n.settings, n.given)
		must(t, err)
		if !tc.stranger {
			equal(t, []any{0, 200, 200}, []any{len(got.Holders), got.Ping.Status, got.SyncLoop.Status})
			continue
		}
		equal(t, []Holder{{n.settings.HealthzAddress, tc.comm, 900}, {n.settings.Address, tc.comm, 900}}, got.Holders)
		listener := func(at string) string { return tc.comm + " (pid 900) listens at " + at + ", not the kubelet" }
		at := n.settings.HealthzAddress
		equal(t, Answer{URL: "http://" + at + "/healthz", Err: listener(at)}, *got.Ping)
		if got.SyncLoop != nil || got.Missing != listener(n.settings.Address) || n.requests.Load() > 0 {
			t.Errorf("the server was asked: %+v", got)
		}
	}
}
