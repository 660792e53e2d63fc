package gc

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
)

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve serves a scenario in memory and returns a client of it.
func serve(t *testing.T, s fake.Scenario) *crictl.Client {
	t.Helper()
	c, err := crictl.Dial("/run/fake.sock", crictl.Options{Dialer: faketest.Serve(t, s)})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// second makes a duration of a scenario.
func second(s float64) fake.Duration { return fake.Duration(s * float64(time.Second)) }

// flood is a scenario of crash loops: 10 pods with 20 exited instances of app each, whose last one runs in half of
// them, each with a dead sandbox from before, and a pod "old" with the oldest containers. Its calls take as long as a
// quick runtime's.
func flood(faults ...fake.Fault) fake.Scenario {
	return fake.Scenario{
		Name: "gc",
		Latency: []fake.Latency{
			{RPC: "Remove*", Base: second(.02)}, {RPC: "List*", Base: second(.002)}, {RPC: "*", Base: second(.001)},
		},
		Faults: faults,
		Pods: []fake.PodGroup{
			{Name: "loop", Count: 5, DeadBefore: 1, Containers: []fake.ContainerGroup{{Name: "app", Exited: 20}}},
			{
				Name: "down", Count: 5, DeadBefore: 1,
				Containers: []fake.ContainerGroup{{Name: "app", State: "exited", Exited: 19}},
			},
			{
				Namespace: "batch", Name: "old", Age: second(480 * 3600),
				Containers: []fake.ContainerGroup{{Name: "load", Exited: 40, Every: second(5 * 3600)}},
			},
		},
	}
}

// list lists a node.
func list(t *testing.T, c *crictl.Client) Node {
	t.Helper()
	sandboxes := c.ListPodSandbox(t.Context(), crictl.Filter{}, "")
	containers := c.ListContainers(t.Context(), crictl.Filter{}, "")
	if !sandboxes.Complete || !containers.Complete {
		t.Fatalf("listing: %+v %+v", sandboxes.Calls, containers.Calls)
	}
	return Node{Sandboxes: sandboxes.Sandboxes, Containers: containers.Containers}
}

// look lists a node, asks for the ends of the candidates and makes a plan.
func look(t *testing.T, c *crictl.Client, rules Rules) (Node, Plan) {
	t.Helper()
	n := list(t, c)
	return n, Make(n, rules, time.Now(), func(of []Candidate) map[string]End {
		asked := 0
		ends, missed := ReadEnds(t.Context(), c, of, func(n int) { asked = n })
		if asked != len(of) || missed.Count > 0 {
			t.Fatalf("asked for %d ends of %d, missed %+v", asked, len(of), missed)
		}
		return ends
	})
}

// A trial is one run, and the state before and after it.
type trial struct {
	Result
	plan Plan
	gone int // objects that the runtime no longer holds
	err  error
	took time.Duration
}

// try plans with a runtime without faults and runs the plan on it, or on its twin in which they are in force. Twins
// hold the same objects only when they start within one second, as in fake time.
func try(t *testing.T, ctx context.Context, opts Options, fault fake.Fault) *trial {
	t.Helper()
	c := serve(t, flood())
	before, plan := look(t, c, Rules{})
	if fault.RPC != "" {
		c = serve(t, flood(fault))
	}
	return tryPlan(t, ctx, c, before, plan, opts)
}

// tryPlan runs a plan and checks the result against the objects that the runtime then holds: nothing counts as removed
// that is there, every candidate is accounted for once, nothing but candidates has gone, and the last progress says so.
func tryPlan(t *testing.T, ctx context.Context, c *crictl.Client, before Node, plan Plan, opts Options) *trial {
	t.Helper()
	start := time.Now()
	r, last := &trial{plan: plan}, Progress{}
	opts.Progress = func(p Progress) { last = p }
	r.Result, r.err = Run(ctx, c, plan, opts)
	r.took = time.Since(start)
	if last.Total != len(plan.Remove) || last.Removed != r.Removed || last.Skipped != len(r.Skipped) ||
		last.Failed != len(r.Failed) || (last.TimeLeft > 0) != (r.Left > 0 && r.Removed > 0) {
		t.Errorf("the last progress is %+v: %s", last, r)
	}
	// until calls that were given up have ended
	time.Sleep(10 * ms)
	reachable := c.ListContainers(t.Context(), crictl.Filter{}, "").Complete // not when it hangs for good
	if reachable {
		gone := idsOf(before)
		for id := range idsOf(list(t, c)) {
			delete(gone, id)
		}
		r.gone = len(gone)
		for _, v := range plan.Remove {
			delete(gone, v.ID)
		}
		if len(gone) > 0 {
			t.Errorf("%v have gone, and were no candidates", gone)
		}
	}
	if r.Removed+len(r.Skipped)+len(r.Failed)+r.Left != len(plan.Remove) {
		t.Errorf("not all of %d candidates are accounted for once: %s", len(plan.Remove), r)
	}
	if reachable && r.Removed > r.gone {
		t.Errorf("fewer have gone than were removed: %s", r)
	}
	return r
}

// idsOf returns the ids of a node's containers and sandboxes.
func idsOf(n Node) map[string]bool {
	all := map[string]bool{}
	for i := range n.Sandboxes {
		all[n.Sandboxes[i].ID] = true
	}
	for i := range n.Containers {
		all[n.Containers[i].ID] = true
	}
	return all
}

// finished reports whether every candidate has gone.
func (r *trial) finished() bool { return r.Removed+len(r.Skipped) == len(r.plan.Remove) }

// failures reports whether something failed, and each for one of these reasons.
func (r *trial) failures(reasons ...string) bool {
	return len(r.Failed) > 0 && !slices.ContainsFunc(r.Failed, func(f Failed) bool {
		return !slices.ContainsFunc(reasons, func(why string) bool { return strings.Contains(f.Error, why) })
	})
}

func (r *trial) String() string {
	return fmt.Sprintf("%d candidates, %d gone, in %v, error %v, %.2000s", len(r.plan.Remove), r.gone, r.took, r.err,
		fmt.Sprintf("%+v", r.Result))
}

// audit opens a new audit file.
func audit(t *testing.T) (a *Audit, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "audit")
	a, err := OpenAudit(path)
	must(t, err)
	return a, path
}
