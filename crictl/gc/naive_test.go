package gc

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/crictl"
)

// random makes a node of a few pods in all kinds of disorder.
func random(r *rand.Rand) (*world, Rules) {
	w := newWorld()
	names := []string{"init", "app", "reinit"}
	age := func() time.Duration { return time.Duration(r.IntN(40)-1) * hour / 4 }
	oneIn := func(n int) bool { return r.IntN(n) == 0 }
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
		last := &w.node.Containers[len(w.node.Containers)-1]
		switch r.IntN(15) {
		case 0:
			delete(w.ends, id)
		case 1:
			last.SandboxID = "elsewhere"
		case 2:
			last.State = exited
		case 3:
			w.ends[id] = End{FinishedAt: noon().Add(-age())}
		case 4:
			last.Pod = w.pod("p0")
		}
	}
	if oneIn(2) {
		pods := []KubeletPod{{UID: "uid-p1", Main: []string{"app"}}}
		w.node.Pods = NewLiveness(&KubeletView{Dirs: []string{"uid-p0"}, Pods: pods})
	}
	if oneIn(8) {
		w.pod("p2").UID = ""
	}
	w.node.Partial = oneIn(6)
	w.node.Kubelet.Keep = []int{0, 0, 1, 2, -1}[r.IntN(5)]
	rules := Rules{Keep: r.IntN(4), IgnorePodLiveness: oneIn(5)}
	if oneIn(4) {
		rules.MinAge = age()
	}
	if oneIn(6) {
		w.node.Kubelet.MinAge = age()
	}
	if oneIn(4) {
		rules.Pod = []string{"p0", "uid-p1"}[r.IntN(2)]
	}
	if oneIn(8) {
		rules.Namespace = []string{"default", "kube-system"}[r.IntN(2)]
	}
	if oneIn(8) {
		rules.Labels = map[string]string{"a": "b"}
		w.node.Selected = map[string]bool{"uid-p0": oneIn(2), "uid-p1": true}
	}
	if oneIn(4) {
		rules.Limit = 1 + r.IntN(5)
	}
	return w, rules
}

// naive is the planner written down rule by rule: slow, and without shared state. It returns the ids that are removed,
// in order, and how many objects are kept for each reason.
func naive(n Node, ends map[string]End, rules Rules, now time.Time) (remove []string, kept map[string]int) {
	keep, minAge := max(1, n.Kubelet.Keep, rules.Keep), max(rules.MinAge, n.Kubelet.MinAge)
	gone := func(pod *crictl.Pod) bool {
		return rules.IgnorePodLiveness || n.Pods != nil && n.Pods.Gone(*pod, true)
	}
	future := func(ns int64) bool { return ns > now.UnixNano() }
	inSandbox := func(c crictl.Container) bool {
		return slices.ContainsFunc(n.Sandboxes, func(s crictl.PodSandbox) bool {
			return s.ID == c.SandboxID && s.Pod.UID == c.Pod.UID && s.Pod.UID != ""
		})
	}
	selected := func(p *crictl.Pod) bool {
		return (rules.Pod == "" || p.Name == rules.Pod || p.UID == rules.Pod) &&
			(rules.Namespace == "" || p.Namespace == rules.Namespace) && (rules.Labels == nil || n.Selected[p.UID])
	}
	started := func(pod *crictl.Pod) bool {
		return slices.ContainsFunc(n.Containers, func(c crictl.Container) bool {
			main := c.Name != "init"
			if n.Pods != nil && pod.UID == "uid-p1" {
				main = c.Name == "app"
			}
			return c.Pod.UID == pod.UID && inSandbox(c) && main && (c.State == exited || c.State == running)
		})
	}
	kept = map[string]int{}
	type reason struct {
		why     string
		applies bool
	}
	judge := func(id string, reasons ...reason) {
		why := ""
		if i := slices.IndexFunc(reasons, func(r reason) bool { return r.applies }); i >= 0 {
			why = reasons[i].why
		}
		if rules.Limit > 0 && len(remove) >= rules.Limit && (why == "" || why == KeptEndUnknown) {
			why = KeptLimit
		}
		if why == "" {
			remove = append(remove, id)
		} else {
			kept[why]++
		}
	}
	n.Containers, n.Sandboxes = slices.Clone(n.Containers), slices.Clone(n.Sandboxes)
	slices.SortFunc(n.Containers, func(a, b crictl.Container) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(n.Sandboxes, func(a, b crictl.PodSandbox) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	for i, c := range n.Containers {
		newer := 0
		for _, d := range n.Containers[i+1:] {
			if d.State == exited && d.Pod.UID == c.Pod.UID && d.Name == c.Name && inSandbox(d) && !future(d.CreatedAt) {
				newer++
			}
		}
		end, known := ends[c.ID]
		if c.State != exited {
			continue
		}
		judge(c.ID,
			reason{KeptNotKubelet, !inSandbox(c)}, reason{KeptClock, future(c.CreatedAt)},
			reason{KeptNewest, newer < keep || n.Kubelet.Keep < 0}, reason{KeptStarting, !gone(c.Pod) && !started(c.Pod)},
			reason{KeptUnselected, !selected(c.Pod)}, reason{KeptYoung, now.Sub(c.Created()) < minAge},
			reason{KeptEndUnknown, !known},
			reason{KeptClock, end.FinishedAt.After(now) || end.FinishedAt.UnixNano() < c.CreatedAt},
			reason{KeptYoung, now.Sub(end.FinishedAt) < minAge})
	}
	for i, s := range n.Sandboxes {
		if s.State == crictl.SandboxReady {
			continue
		}
		occupied := slices.ContainsFunc(n.Containers, func(c crictl.Container) bool {
			return c.SandboxID == s.ID && !slices.Contains(remove, c.ID)
		})
		newest := !slices.ContainsFunc(n.Sandboxes[i+1:], func(o crictl.PodSandbox) bool {
			return o.Pod.UID == s.Pod.UID && !future(o.CreatedAt)
		})
		judge(s.ID,
			reason{KeptNotKubelet, s.Pod.UID == ""}, reason{KeptClock, future(s.CreatedAt)},
			reason{KeptPartial, n.Partial}, reason{KeptOccupied, occupied},
			reason{KeptLastOfPod, newest && !gone(s.Pod)}, reason{KeptUnselected, !selected(s.Pod)},
			reason{KeptYoung, now.Sub(s.Created()) < minAge})
	}
	return remove, kept
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

// TestMakeAgainstNaive also wants every reason to keep something to come up.
func TestMakeAgainstNaive(t *testing.T) {
	type verdict struct {
		Remove []string
		Kept   map[string]int
	}
	candidates, reasons := 0, map[string]int{}
	for seed := range uint64(2500) {
		r := rand.New(rand.NewPCG(seed, 4))
		w, rules := random(r)
		plan := w.plan(w.node, rules)
		got := verdict{ids(plan), map[string]int{}}
		for _, k := range plan.KeptBy {
			got.Kept[k.Why] = k.Count
			reasons[k.Why]++
		}
		candidates += len(got.Remove)
		remove, kept := naive(w.node, w.ends, rules, noon())
		if diff := gocmp.Diff(verdict{remove, kept}, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d, %+v (-naive +planner):\n%s", seed, rules, diff)
		}
		newestAndExited(t, seed, w, plan)
		if again := w.plan(apply(w.node, plan), rules); len(again.Remove) != 0 && rules.Limit == 0 {
			t.Fatalf("seed %d: after the run the plan still has %v", seed, ids(again))
		}
		shuffled := w.node
		shuffled.Containers = slices.Clone(w.node.Containers)
		c := shuffled.Containers
		r.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
		if again := w.plan(shuffled, rules); !reflect.DeepEqual(plan, again) {
			t.Fatalf("seed %d: the order of the list changes the plan:\n%s", seed, gocmp.Diff(plan, again))
		}
	}
	if candidates < 1_500 || len(reasons) != len(keptOrder()) {
		t.Errorf("%d candidates, kept for %v: the nodes are too tame", candidates, reasons)
	}
}

// newestAndExited checks the property of every plan, whatever the rules: only exited containers go, and never the
// newest of a unit.
func newestAndExited(t *testing.T, seed uint64, w *world, plan Plan) {
	t.Helper()
	newest, state := map[unit]crictl.Container{}, map[string]crictl.ContainerState{}
	for _, c := range w.node.Containers {
		state[c.ID] = c.State
		u := unit{c.Pod.UID, c.Name}
		if old, ok := newest[u]; !ok || olderContainer(&old, &c) < 0 {
			newest[u] = c
		}
	}
	for _, v := range plan.Remove {
		if last := newest[unit{v.PodUID, v.Container}].ID == v.ID; v.Why == "" || last ||
			v.Kind == KindContainer && state[v.ID] != exited {
			t.Fatalf("seed %d: %+v is %s, the newest of its unit: %t", seed, v, state[v.ID], last)
		}
	}
}

// noon is when the tests' plans are made.
func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) int64 { return noon().Add(-d).UnixNano() }

// A world is a node that tests put together.
type world struct {
	node Node
	ends map[string]End
	pods map[string]*crictl.Pod
}

func newWorld() *world {
	return &world{ends: map[string]End{}, pods: map[string]*crictl.Pod{}}
}

func (w *world) pod(name string) *crictl.Pod {
	if w.pods[name] == nil {
		w.pods[name] = &crictl.Pod{Namespace: "default", Name: name, UID: "uid-" + name}
	}
	return w.pods[name]
}

func (w *world) sandbox(id, pod string, state crictl.SandboxState, age time.Duration) *world {
	w.node.Sandboxes = append(w.node.Sandboxes, crictl.PodSandbox{
		ID: id, Pod: w.pod(pod), ConfigSource: "api", CreatedAt: ago(age), State: state, Size: 100,
	})
	return w
}

// container adds one that was made at age and ended a minute later.
func (w *world) container(id, sandbox, pod, name string, state crictl.ContainerState, age time.Duration) *world {
	w.node.Containers = append(w.node.Containers, crictl.Container{
		ID: id, SandboxID: sandbox, Name: name, Pod: w.pod(pod), CreatedAt: ago(age), State: state, Size: 1000,
	})
	w.ends[id] = End{FinishedAt: noon().Add(-age + time.Minute)}
	return w
}

// plan plans for a node of which all ends are known that w has.
func (w *world) plan(node Node, rules Rules) Plan {
	return Make(node, rules, noon(), func([]Candidate) map[string]End { return w.ends })
}

const (
	exited  = crictl.ContainerExited
	running = crictl.ContainerRunning
	hour    = time.Hour
)

func ids(p Plan) []string {
	out := []string{}
	for _, v := range p.Remove {
		out = append(out, v.ID)
	}
	return out
}

// crowd is a node of 200 containers for each of so many pods, nearly all exited.
func crowd(pods int) *world {
	const each = 200
	w := newWorld()
	for p := range pods {
		pod, sandbox := fmt.Sprintf("job-%04d", p), fmt.Sprintf("%064x", p)
		w.sandbox(sandbox, pod, crictl.SandboxReady, 500*hour)
		for c := range each - 1 {
			w.container(fmt.Sprintf("%032x%032x", p, c), sandbox, pod, "load", exited, time.Duration(each-c)*hour)
		}
		w.container(fmt.Sprintf("%064x", pods+p), sandbox, pod, "load", running, hour)
	}
	return w
}

func BenchmarkMake100000(b *testing.B) {
	w := crowd(500)
	b.ReportAllocs()
	for b.Loop() {
		if p := w.plan(w.node, Rules{}); len(p.Remove) != 500*198 {
			b.Fatalf("%d candidates", len(p.Remove))
		}
	}
}
