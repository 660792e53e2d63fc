package gc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

func TestMake(t *testing.T) {
	const ready, notReady = crictl.SandboxReady, crictl.SandboxNotReady
	short := map[string]string{
		KeptNotKubelet: "not kubelet", KeptClock: "clock", KeptNewest: "newest", KeptStarting: "starting",
		KeptPartial: "partial", KeptOccupied: "occupied", KeptLastOfPod: "last of pod", KeptUnselected: "unselected",
		KeptEndUnknown: "end unknown", KeptYoung: "young", KeptLimit: "limit",
	}
	loop := func() *world {
		return newWorld().sandbox("s", "web", ready, 9*hour).
			container("c3", "s", "web", "app", exited, 3*hour).
			container("c5", "s", "web", "app", exited, 5*hour).
			container("c4", "s", "web", "app", exited, 4*hour).
			container("c1", "s", "web", "app", running, 1*hour)
	}
	initial := func(name string, state crictl.ContainerState) *world {
		return newWorld().sandbox("s", "web", ready, 9*hour).
			container("i1", "s", "web", "init-db", exited, 5*hour).
			container("i2", "s", "web", "init-db", exited, 4*hour).
			container("m", "s", "web", name, state, 3*hour)
	}
	dead := func() *world {
		return newWorld().sandbox("s1", "web", notReady, 9*hour).
			sandbox("s2", "web", notReady, 8*hour)
	}
	with := func(w *world, change func(*Node)) *world { change(&w.node); return w }
	for _, tt := range []struct {
		name  string
		world *world
		rules Rules
		want  string // ids to remove | reasons of what stays
	}{
		{"the newest exited stays, oldest first", loop(), Rules{}, "c5 c4 | newest 1"},
		{"limit", loop(), Rules{Limit: 1}, "c5 | newest 1, limit 1"},
		{"min age counts from the end", loop(), Rules{MinAge: 5*hour - 30*time.Second}, "- | newest 1, young 2"},
		{
			name: "the kubelet's age", world: with(loop(), func(n *Node) { n.Kubelet.MinAge = 4 * hour }),
			want: "c5 | newest 1, young 1",
		},
		{"end unknown", with(loop(), func(n *Node) { delete(n.Ends, "c4") }), Rules{}, "c5 | newest 1, end unknown 1"},
		{
			name:  "ended in the future",
			world: with(loop(), func(n *Node) { n.Ends["c4"] = End{FinishedAt: noon().Add(1)} }),
			want:  "c5 | clock 1, newest 1",
		},
		{"other namespace", loop(), Rules{Namespace: "kube-system"}, "- | newest 1, unselected 2"},
		{"pod by uid", loop(), Rules{Pod: "uid-web"}, "c5 c4 | newest 1"},
		{
			"labels that nobody looked up", loop(),
			Rules{Labels: map[string]string{"a": "b"}},
			"- | newest 1, unselected 2",
		},
		{
			"labels", with(loop(), func(n *Node) { n.Selected = map[string]bool{"uid-web": true} }),
			Rules{Labels: map[string]string{"a": "b"}},
			"c5 c4 | newest 1",
		},
		{"sandbox not listed", with(loop(), func(n *Node) { n.Sandboxes = nil }), Rules{}, "- | not kubelet 3"},
		{
			"beyond the limit no end is needed", with(loop(), func(n *Node) { delete(n.Ends, "c4") }),
			Rules{Limit: 1},
			"c5 | newest 1, limit 1",
		},
		{
			"young by its creation no end is needed", with(loop(), func(n *Node) { clear(n.Ends) }),
			Rules{MinAge: 6 * hour},
			"- | newest 1, young 2",
		},
		{"no uid", with(loop(), func(n *Node) { n.Sandboxes[0].Pod.UID = "" }), Rules{}, "- | not kubelet 3"},
		{
			name:  "sandbox of another pod",
			world: loop().sandbox("t", "other", ready, hour).container("x", "t", "web", "app", exited, 7*hour),
			want:  "c5 c4 | not kubelet 1, newest 1",
		},
		{"init only, by name", initial("my-init", running), Rules{}, "- | newest 1, starting 1"},
		{
			name: "main with an init's name, by spec", world: with(initial("init", running), func(n *Node) {
				n.Pods = NewLiveness(&Evidence{Pods: []KubeletPod{{UID: "uid-web", Main: []string{"init"}}}})
			}),
			want: "i1 | newest 1",
		},
		{
			name: "dead sandbox emptied by the plan", world: dead().container("c", "s1", "web", "app", exited, 8*hour).
				container("d", "s2", "web", "app", exited, 7*hour),
			want: "c s1 | newest 1, occupied 1",
		},
		{"part of a list", with(dead(), func(n *Node) { n.Partial = true }), Rules{}, "- | partial 2"},
		{"young sandbox", dead(), Rules{MinAge: 10 * hour}, "- | last of pod 1, young 1"},
		{
			"limit over both", dead().container("c", "s1", "web", "app", exited, 8*hour).
				container("d", "s2", "web", "app", exited, 7*hour),
			Rules{Limit: 1},
			"c | newest 1, occupied 1, limit 1",
		},
	} {
		plan := Make(tt.world.node, tt.rules, noon())
		var kept []string
		for _, k := range plan.KeptBy {
			kept = append(kept, fmt.Sprint(short[k.Why], " ", k.Count))
		}
		removed := strings.Join(ids(plan), " ")
		if removed == "" {
			removed = "-"
		}
		if got := removed + " | " + strings.Join(kept, ", "); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestNarrow(t *testing.T) {
	w := newWorld().sandbox("s", "web", crictl.SandboxReady, 9*hour).
		container("a", "s", "web", "app", exited, 4*hour).
		container("b", "s", "web", "app", exited, 3*hour).
		container("c", "s", "web", "app", exited, 2*hour)
	older := Make(w.node, Rules{}, noon())
	later := w.node
	later.Containers = slices.Clone(later.Containers[:2]) // c went away by other hands: b is the newest now
	got, skipped := Narrow(older, Make(later, Rules{}, noon()))
	if diff := cmp.Diff([]string{"a"}, ids(got)); diff != "" || older.Bytes != 2000 || got.Bytes != 1000 {
		t.Errorf("removes %d bytes of %d (-want +got):\n%s", got.Bytes, older.Bytes, diff)
	}
	if diff := cmp.Diff([]Skipped{{ID: "b", Why: notPlanned}}, skipped); diff != "" {
		t.Errorf("skips (-want +got):\n%s", diff)
	}
	later.Containers[0].CreatedAt++ // another container of the same id
	if got, _ := Narrow(older, Make(later, Rules{}, noon())); len(got.Remove) != 0 {
		t.Errorf("removes %v", ids(got))
	}
}
