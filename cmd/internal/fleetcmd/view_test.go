package fleetcmd

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/checks/fleet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/internal/testkit"
)

// snapshot has nodes by name, with the message of Ready; empty for a node that is ready.
func snapshot(nodes ...string) *fleet.Snapshot {
	s := &fleet.Snapshot{At: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	for i := 0; i < len(nodes); i += 2 {
		ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue}
		if nodes[i+1] != "" {
			ready.Status, ready.Message = v1.ConditionFalse, nodes[i+1]
		}
		s.Nodes = append(s.Nodes, fleet.Node{Name: nodes[i], Conditions: []v1.NodeCondition{ready}})
	}
	return s
}

func testView() *view {
	env := cli.Env{
		Out: new(bytes.Buffer), Now: time.Now, Getenv: func(string) string { return "" }, Hostname: os.Hostname, Width: 80,
	}
	return &view{env: env, opts: &options{more: "kdiag fleet", same: " --context c"}, name: "prod-eu"}
}

// TestTake has the changes that are shown.
func TestTake(t *testing.T) {
	const pleg, down = "PLEG is not healthy: x", "container runtime is down"
	v := testView()
	if !v.take(snapshot("a", "", "b", pleg, "c", "", "d", "")) || len(v.changes) != 0 {
		t.Errorf("the first reading changed %q", v.changes)
	}
	if v.take(snapshot("a", "", "b", pleg, "c", "", "d", "")) {
		t.Error("the same reading is a change")
	}
	if !v.take(snapshot("a", "", "b", down, "c", pleg, "e", "")) {
		t.Error("no change")
	}
	want := []string{
		"12:00:00 b sick: RuntimeDown", "12:00:00 c sick: PLEGUnhealthy", "12:00:00 e well", "12:00:00 d deleted",
	}
	slices.Sort(v.changes)
	slices.Sort(want)
	testkit.Equal(t, "changes", want, v.changes)
	for i := range 3 * mostChanges {
		v.take(snapshot("a", []string{"", pleg}[i%2]))
	}
	if len(v.changes) != mostChanges {
		t.Errorf("%d changes are kept", len(v.changes))
	}
}

// TestDraw checks that the verdict, the latest change and how to leave fit a screen, and that only a command is
// longer than a line.
func TestDraw(t *testing.T) {
	v := testView()
	v.take(snapshot("a", "", "b", "", "c", ""))
	for range 20 {
		v.take(snapshot("a", "", "b", "PLEG is not healthy: x", "c", ""))
		v.take(snapshot("a", "", "b", "", "c", ""))
	}
	v.take(snapshot("a", "container runtime is down", "b", "", "c", ""))
	for _, size := range [][2]int{{80, 24}, {60, 24}, {200, 60}} {
		lines := v.draw(size[0], size[1])
		last := lines[len(lines)-1]
		if len(lines) > size[1] || !strings.HasPrefix(lines[0], "UNHEALTHY") || !strings.HasSuffix(last, "q ends") ||
			lines[len(lines)-2] != "12:00:00 a sick: RuntimeDown" {
			t.Errorf("%v:\n%s", size, strings.Join(lines, "\n"))
		}
		for _, line := range lines {
			if len(line) >= size[0] && !strings.Contains(line, " scp ") {
				t.Errorf("%v: a line has %d columns: %s", size, len(line), line)
			}
		}
	}
}

// TestCommand has commands mean the same cluster, and begin as the person typed them.
func TestCommand(t *testing.T) {
	const log = "kubectl get --raw /x --context c | TZ=UTC "
	for _, tt := range []struct {
		plugin     bool
		line, want string
	}{
		{false, "kubectl get --raw /x | TZ=UTC kdiag journal", log + "kdiag journal"},
		{true, "kubectl get --raw /x | TZ=UTC kdiag journal", log + "kubectl kdiag journal"},
		{false, "kdiag explain RuntimeDown", "kdiag explain RuntimeDown"},
	} {
		v := testView()
		v.env.Plugin = tt.plugin
		testkit.Equal(t, tt.line, tt.want, v.command(tt.line))
	}
}
