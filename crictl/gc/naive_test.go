package gc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/crictl"
)

// random makes a node of a few pods in all kinds of disorder.
func random(r *rand.Rand) (*world, Rules) {
	w := newWorld()
	names := []string{"init", "app", "sidecar"}
	age := func() time.Duration { return time.Duration(r.IntN(40)-1) * hour / 4 }
	for p := range 1 + r.IntN(4) {
		pod := fmt.Sprint("p", p)
		for s := range 1 + r.IntN(3) {
			w.sandbox(fmt.Sprint("s", p, s), pod, crictl.SandboxState(r.IntN(2)), age())
		}
	}
	for c := range r.IntN(40) {
		s := w.node.Sandboxes[r.IntN(len(w.node.Sandboxes))]
		id := fmt.Sprint("c", c)
		w.container(id, s.ID, s.Pod.Name, names[r.IntN(3)], crictl.ContainerState(r.IntN(4)), age())
		switch r.IntN(12) {
		case 0:
			delete(w.node.Ends, id)
		case 1:
			w.node.Containers[len(w.node.Containers)-1].SandboxID = "elsewhere"
		case 2:
			w.node.Containers[len(w.node.Containers)-1].State = exited
		case 3:
			w.node.Ends[id] = End{FinishedAt: noon().Add(-age())}
		}
	}
	if r.IntN(2) == 0 {
		pods := []KubeletPod{{UID: "uid-p1", Main: []string{"app"}}}
		w.node.Pods = NewLiveness(&Evidence{Dirs: []string{"uid-p0"}, Pods: pods})
	}
	w.node.Partial = r.IntN(6) == 0
	w.node.Kubelet.Keep = []int{0, 0, 1, 2, -1}[r.IntN(5)]
	rules := Rules{Keep: r.IntN(4), IgnorePodLiveness: r.IntN(5) == 0}
	if r.IntN(3) == 0 {
		rules.MinAge = age()
	}
	if r.IntN(4) == 0 {
		rules.Pod = "p0"
	}
	return w, rules
}

// naive is the planner written down rule by rule: slow, and without shared state.
func naive(n Node, rules Rules, now time.Time) []string {
	keep := max(1, n.Kubelet.Keep, rules.Keep)
	gone := func(uid, name string) bool {
		pod := crictl.Pod{UID: uid, Name: name, Namespace: "default"}
		return rules.IgnorePodLiveness || n.Pods != nil && n.Pods.Gone(pod, true)
	}
	future := func(ns int64) bool { return ns > now.UnixNano() }
	sandboxOf := func(c crictl.Container) bool {
		return slices.ContainsFunc(n.Sandboxes, func(s crictl.PodSandbox) bool { return s.ID == c.SandboxID })
	}
	selected := func(p *crictl.Pod) bool { return rules.Pod == "" || p.Name == rules.Pod }
	started := func(pod *crictl.Pod) bool {
		return slices.ContainsFunc(n.Containers, func(c crictl.Container) bool {
			main := c.Name != "init"
			if n.Pods != nil && pod.UID == "uid-p1" {
				main = c.Name == "app"
			}
			return c.Pod.UID == pod.UID && sandboxOf(c) && main && (c.State == exited || c.State == running)
		})
	}
	removed := map[string]bool{}
	var out []string
	for _, c := range n.Containers {
		newer := 0
		for _, d := range n.Containers {
			if d.State == exited && d.Pod.UID == c.Pod.UID && d.Name == c.Name && sandboxOf(d) &&
				!future(d.CreatedAt) &&
				(d.CreatedAt > c.CreatedAt || d.CreatedAt == c.CreatedAt && d.ID > c.ID) {
				newer++
			}
		}
		got, known := n.Ends[c.ID]
		end := got.FinishedAt
		if c.State == exited && sandboxOf(c) && !future(c.CreatedAt) && newer >= keep && n.Kubelet.Keep >= 0 &&
			(gone(c.Pod.UID, c.Pod.Name) || started(c.Pod)) && selected(c.Pod) &&
			known && !end.After(now) && end.UnixNano() >= c.CreatedAt && now.Sub(end) >= rules.MinAge {
			removed[c.ID] = true
			out = append(out, c.ID)
		}
	}
	for _, s := range n.Sandboxes {
		occupied := slices.ContainsFunc(n.Containers, func(c crictl.Container) bool {
			return c.SandboxID == s.ID && !removed[c.ID]
		})
		newest := !slices.ContainsFunc(n.Sandboxes, func(o crictl.PodSandbox) bool {
			return o.Pod.UID == s.Pod.UID && !future(o.CreatedAt) && (o.CreatedAt > s.CreatedAt ||
				o.CreatedAt == s.CreatedAt && o.ID > s.ID)
		})
		if s.State == crictl.SandboxNotReady && !n.Partial && !occupied && !future(s.CreatedAt) && selected(s.Pod) &&
			(!newest || gone(s.Pod.UID, s.Pod.Name)) && now.Sub(s.Created()) >= rules.MinAge {
			out = append(out, s.ID)
		}
	}
	slices.Sort(out)
	return out
}

// apply returns the node after the plan has been run.
func apply(n Node, p Plan) Node {
	gone := map[string]bool{}
	for _, v := range p.Remove {
		gone[v.ID] = true
	}
	n.Containers = slices.DeleteFunc(slices.Clone(n.Containers), func(c crictl.Container) bool { return gone[c.ID] })
	n.Sandboxes = slices.DeleteFunc(slices.Clone(n.Sandboxes), func(s crictl.PodSandbox) bool { return gone[s.ID] })
	return n
}

func TestMakeAgainstNaive(t *testing.T) {
	candidates := 0
	for seed := range uint64(2500) {
		r := rand.New(rand.NewPCG(seed, 4))
		w, rules := random(r)
		plan := Make(w.node, rules, noon())
		got := slices.Sorted(slices.Values(ids(plan)))
		candidates += len(got)
		if diff := cmp.Diff(naive(w.node, rules, noon()), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d, %+v (-naive +planner):\n%s", seed, rules, diff)
		}
		properties(t, seed, w, plan)
		if again := Make(apply(w.node, plan), rules, noon()); len(again.Remove) != 0 {
			t.Fatalf("seed %d: after the run the plan still has %v", seed, ids(again))
		}
		shuffled := w.node
		c := slices.Clone(w.node.Containers)
		r.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
		shuffled.Containers = c
		if diff := cmp.Diff(plan, Make(shuffled, rules, noon())); diff != "" {
			t.Fatalf("seed %d: the order of the list changes the plan:\n%s", seed, diff)
		}
		possible := ids(Plan{Remove: Candidates(w.node, rules, noon())})
		for _, v := range plan.Remove {
			if v.Kind == KindContainer && !slices.Contains(possible, v.ID) {
				t.Fatalf("seed %d: %s is planned, and not among the Candidates", seed, v.ID)
			}
		}
	}
	if candidates < 2_000 {
		t.Errorf("only %d candidates in all: the nodes are too tame", candidates)
	}
}

// properties checks what must hold of every plan, whatever the rules: only exited containers go, and never the newest
// of a unit; a live pod keeps a sandbox; and all is counted.
func properties(t *testing.T, seed uint64, w *world, plan Plan) {
	t.Helper()
	newest, state, dead := map[unit]crictl.Container{}, map[string]crictl.ContainerState{}, 0
	for _, c := range w.node.Containers {
		state[c.ID] = c.State
		u := unit{c.Pod.UID, c.Name}
		if old, ok := newest[u]; !ok || olderContainer(&old, &c) < 0 {
			newest[u] = c
		}
		if c.State == exited {
			dead++
		}
	}
	for _, v := range plan.Remove {
		if last := newest[unit{v.PodUID, v.Container}].ID == v.ID; v.Why == "" || last ||
			v.Kind == KindContainer && state[v.ID] != exited {
			t.Fatalf("seed %d: %+v is %s, the newest of its unit: %t", seed, v, state[v.ID], last)
		}
	}
	after := apply(w.node, plan)
	for _, s := range w.node.Sandboxes {
		if s.State == crictl.SandboxNotReady {
			dead++
		}
		if w.node.Pods == nil && !plan.Rules.IgnorePodLiveness &&
			!slices.ContainsFunc(after.Sandboxes, func(o crictl.PodSandbox) bool { return o.Pod.UID == s.Pod.UID }) {
			t.Fatalf("seed %d: no sandbox is left of live pod %s", seed, s.Pod.UID)
		}
	}
	if dead != plan.Keep+len(plan.Remove) {
		t.Fatalf("seed %d: %d kept and %d removed of %d", seed, plan.Keep, len(plan.Remove), dead)
	}
}
