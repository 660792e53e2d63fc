package gc

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

func TestMake(t *testing.T) {
	loop := func() *world {
		return newWorld().sandbox("s", "web", crictl.SandboxReady, 9*hour).
			container("c3", "s", "web", "app", exited, 3*hour).
			container("c5", "s", "web", "app", exited, 5*hour).
			container("c4", "s", "web", "app", exited, 4*hour).
			container("c1", "s", "web", "app", running, 1*hour)
	}
	initial := func(name string, state crictl.ContainerState) *world {
		return newWorld().sandbox("s", "web", crictl.SandboxReady, 9*hour).
			container("i1", "s", "web", "init-db", exited, 5*hour).
			container("i2", "s", "web", "init-db", exited, 4*hour).
			container("m", "s", "web", name, state, 3*hour)
	}
	dead := func() *world {
		return newWorld().sandbox("s1", "web", crictl.SandboxNotReady, 9*hour).
			sandbox("s2", "web", crictl.SandboxNotReady, 8*hour)
	}
	with := func(w *world, change func(*world)) *world { change(w); return w }
	tests := []struct {
		name  string
		world *world
		rules Rules
		want  []string
		kept  []Kept
	}{
		{
			name: "the newest exited stays, oldest first", world: loop(), want: []string{"c5", "c4"},
			kept: []Kept{{KeptNewest, 1}},
		},
		{name: "keep raises", world: loop(), rules: Rules{Keep: 2}, want: []string{"c5"}, kept: []Kept{{KeptNewest, 2}}},
		{
			name: "keep lowers nothing", world: with(loop(), func(w *world) { w.node.Kubelet.Keep = 3 }),
			rules: Rules{Keep: 1}, want: []string{}, kept: []Kept{{KeptNewest, 3}},
		},
		{
			name: "negative keep", world: loop(), rules: Rules{Keep: -5}, want: []string{"c5", "c4"},
			kept: []Kept{{KeptNewest, 1}},
		},
		{
			name: "kubelet without a bound", world: with(loop(), func(w *world) { w.node.Kubelet.Keep = -1 }),
			want: []string{}, kept: []Kept{{KeptNewest, 3}},
		},
		{
			name: "limit", world: loop(), rules: Rules{Limit: 1}, want: []string{"c5"},
			kept: []Kept{{KeptNewest, 1}, {KeptLimit, 1}},
		},
		{
			name: "min age counts from the end", world: loop(), rules: Rules{MinAge: 5*hour - 30*time.Second},
			want: []string{}, kept: []Kept{{KeptNewest, 1}, {KeptYoung, 2}},
		},
		{
			name: "older than", world: loop(), rules: Rules{OlderThan: 4 * hour}, want: []string{"c5"},
			kept: []Kept{{KeptNewest, 1}, {KeptYoung, 1}},
		},
		{
			name: "the kubelet's age", world: with(loop(), func(w *world) { w.node.Kubelet.MinAge = 4 * hour }),
			want: []string{"c5"}, kept: []Kept{{KeptNewest, 1}, {KeptYoung, 1}},
		},
		{
			name: "end unknown", world: with(loop(), func(w *world) { delete(w.ended, "c4") }), want: []string{"c5"},
			kept: []Kept{{KeptNewest, 1}, {KeptEndUnknown, 1}},
		},
		{
			name: "ended in the future", world: with(loop(), func(w *world) { w.ended["c4"] = noon().Add(1) }),
			want: []string{"c5"}, kept: []Kept{{KeptClock, 1}, {KeptNewest, 1}},
		},
		{
			name: "ended before it began", world: with(loop(), func(w *world) { w.ended["c4"] = noon().Add(-5 * hour) }),
			want: []string{"c5"}, kept: []Kept{{KeptClock, 1}, {KeptNewest, 1}},
		},
		{
			name: "made in the future is not the newest", world: loop().container("f", "s", "web", "app", exited, -hour),
			want: []string{"c5", "c4"}, kept: []Kept{{KeptClock, 1}, {KeptNewest, 1}},
		},
		{
			name: "other namespace", world: loop(), rules: Rules{Namespace: "kube-system"}, want: []string{},
			kept: []Kept{{KeptNewest, 1}, {KeptUnselected, 2}},
		},
		{
			name: "pod by uid", world: loop(), rules: Rules{Pod: "uid-web"}, want: []string{"c5", "c4"},
			kept: []Kept{{KeptNewest, 1}},
		},
		{
			name: "labels that nobody looked up", world: loop(), rules: Rules{Labels: map[string]string{"a": "b"}},
			want: []string{}, kept: []Kept{{KeptNewest, 1}, {KeptUnselected, 2}},
		},
		{
			name: "labels", world: with(loop(), func(w *world) { w.node.Selected = map[string]bool{"uid-web": true} }),
			rules: Rules{Labels: map[string]string{"a": "b"}}, want: []string{"c5", "c4"}, kept: []Kept{{KeptNewest, 1}},
		},
		{
			name: "sandbox not listed", world: with(loop(), func(w *world) { w.node.Sandboxes = nil }), want: []string{},
			kept: []Kept{{KeptNotKubelet, 3}},
		},
		{
			name: "no uid", world: with(loop(), func(w *world) { w.pod("web").UID = "" }), want: []string{},
			kept: []Kept{{KeptNotKubelet, 3}},
		},
		{
			name: "listed twice", world: loop().container("c5", "s", "web", "app", running, 5*hour), want: []string{"c4"},
			kept: []Kept{{KeptNotKubelet, 1}, {KeptNewest, 1}},
		},
		{
			name: "sandbox of another pod", world: loop().sandbox("t", "other", crictl.SandboxReady, hour).container("x", "t",
				"web", "app", exited, 7*hour), want: []string{"c5", "c4"}, kept: []Kept{{KeptNotKubelet, 1}, {KeptNewest, 1}},
		},

		{name: "init with main", world: initial("app", running), want: []string{"i1"}, kept: []Kept{{KeptNewest, 1}}},
		{
			name: "init only, by name", world: initial("my-init", running), want: []string{},
			kept: []Kept{{KeptNewest, 1}, {KeptStarting, 1}},
		},
		{
			name: "main created only", world: initial("app", crictl.ContainerCreated), want: []string{},
			kept: []Kept{{KeptNewest, 1}, {KeptStarting, 1}},
		},
		{name: "init only, by spec", world: with(initial("app", running), func(w *world) {
			w.node.Pods = NewLiveness(&Evidence{Pods: []KubeletPod{{UID: "uid-web", Main: []string{"main"}}}})
		}), want: []string{}, kept: []Kept{{KeptNewest, 1}, {KeptStarting, 1}}},
		{name: "main with an init's name, by spec", world: with(initial("init", running), func(w *world) {
			w.node.Pods = NewLiveness(&Evidence{Pods: []KubeletPod{{UID: "uid-web", Main: []string{"init"}}}})
		}), want: []string{"i1"}, kept: []Kept{{KeptNewest, 1}}},
		{
			name: "init only of a gone pod", world: with(initial("init", exited), func(w *world) { w.node.Pods = nobody() }),
			want: []string{"i1"}, kept: []Kept{{KeptNewest, 2}},
		},
		{
			name: "init only, liveness ignored", world: initial("init", exited), rules: Rules{IgnorePodLiveness: true},
			want: []string{"i1"}, kept: []Kept{{KeptNewest, 2}},
		},

		{name: "older dead sandbox", world: dead(), want: []string{"s1"}, kept: []Kept{{KeptLastOfPod, 1}}},
		{
			name: "dead sandboxes of a gone pod", world: with(dead(), func(w *world) { w.node.Pods = nobody() }),
			want: []string{"s1", "s2"},
		},
		{
			name: "dead sandboxes, liveness ignored", world: dead(), rules: Rules{IgnorePodLiveness: true},
			want: []string{"s1", "s2"},
		},
		{
			name: "dead sandbox with the newest container", world: dead().container("c", "s1", "web", "app", exited, 8*hour),
			want: []string{}, kept: []Kept{{KeptNewest, 1}, {KeptOccupied, 1}, {KeptLastOfPod, 1}},
		},
		{
			name: "dead sandbox emptied by the plan", world: dead().container("c", "s1", "web", "app", exited,
				8*hour).container("d", "s2", "web", "app", exited, 7*hour), want: []string{"c", "s1"},
			kept: []Kept{{KeptNewest, 1}, {KeptOccupied, 1}},
		},
		{
			name: "dead sandbox with an unknown container", world: dead().container("c", "s1", "web", "app",
				crictl.ContainerUnknown, 8*hour), want: []string{}, kept: []Kept{{KeptOccupied, 1}, {KeptLastOfPod, 1}},
		},
		{
			name: "part of a list", world: with(dead(), func(w *world) { w.node.Partial = true }), want: []string{},
			kept: []Kept{{KeptPartial, 2}},
		},
		{
			name: "young sandbox", world: dead(), rules: Rules{MinAge: 10 * hour}, want: []string{},
			kept: []Kept{{KeptLastOfPod, 1}, {KeptYoung, 1}},
		},
		{
			name: "sandbox from the future is not the newest", world: dead().sandbox("f", "web", crictl.SandboxReady, -hour),
			want: []string{"s1"}, kept: []Kept{{KeptLastOfPod, 1}},
		},
		{
			name: "sandbox listed twice", world: dead().sandbox("s1", "web", crictl.SandboxReady, 9*hour), want: []string{},
			kept: []Kept{{KeptNotKubelet, 1}, {KeptLastOfPod, 1}},
		},
		{
			name: "limit over both", world: dead().container("c", "s1", "web", "app", exited, 8*hour).container("d", "s2",
				"web", "app", exited, 7*hour), rules: Rules{Limit: 1}, want: []string{"c"},
			kept: []Kept{{KeptNewest, 1}, {KeptOccupied, 1}, {KeptLimit, 1}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := Make(tt.world.node, tt.rules, noon())
			if diff := cmp.Diff(tt.want, ids(plan)); diff != "" {
				t.Errorf("removes (-want +got):\n%s", diff)
			}
			want := append([]Kept{}, tt.kept...)
			if diff := cmp.Diff(want, plan.KeptBy); diff != "" {
				t.Errorf("keeps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMakeVictim(t *testing.T) {
	w := newWorld().sandbox("s", "web", crictl.SandboxReady, 9*hour).
		container("a", "s", "web", "app", exited, 2*hour).container("b", "s", "web", "app", exited, hour)
	got := Make(w.node, Rules{}, noon())
	want := Plan{
		Remove: []Candidate{{
			Kind: KindContainer, ID: "a", Namespace: "default", Pod: "web", PodUID: "uid-web", Container: "app",
			CreatedAt: time.Unix(0, ago(2*hour)), FinishedAt: noon().Add(-2*hour + time.Minute), Bytes: 1000,
			Why: "exited; a newer exited instance of it stays",
		}},
		Keep: 1, KeptBy: []Kept{{KeptNewest, 1}}, Bytes: 1000, Newest: 1, MadeAt: noon(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
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
