package gc

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

const rpcTimeout = 5 * time.Second

// serve serves a scenario in memory and returns a client of it.
func serve(t *testing.T, s fake.Scenario) *crictl.Client {
	t.Helper()
	srv, err := fake.New(s)
	if err != nil {
		t.Fatal(err)
	}
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	c, err := crictl.Dial("/run/fake.sock", crictl.Options{
		RPCTimeout: rpcTimeout,
		Dialer:     func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		srv.Stop()
		<-served
	})
	return c
}

// flood is a scenario of crash loops: pods with exited instances of app each, whose last one runs in half of them, and
// each with a dead sandbox from before. Its calls take what a quick runtime needs.
func flood(pods, exited int, faults ...fake.Fault) fake.Scenario {
	return fake.Scenario{
		Name: "gc",
		Latency: []fake.Latency{
			{RPC: "Remove*", Base: fake.Duration(20 * time.Millisecond)},
			{RPC: "List*", Base: fake.Duration(2 * time.Millisecond)},
			{RPC: "*", Base: fake.Duration(time.Millisecond)},
		},
		Faults: faults,
		Pods: []fake.PodGroup{
			{Name: "loop", Count: pods / 2, DeadBefore: 1, Containers: []fake.ContainerGroup{{Name: "app", Exited: exited}}},
			{
				Name: "down", Count: pods - pods/2, DeadBefore: 1, Containers: []fake.ContainerGroup{{
					Name:  "app",
					State: "exited", Exited: exited - 1,
				}},
			},
		},
	}
}

// look lists a node and asks for the ends of the candidates.
func look(t *testing.T, c *crictl.Client, rules Rules) (Node, Plan) {
	t.Helper()
	sandboxes := c.ListPodSandbox(t.Context(), crictl.Filter{}, "")
	containers := c.ListContainers(t.Context(), crictl.Filter{}, "")
	if !sandboxes.Complete || !containers.Complete {
		t.Fatalf("listing: %+v %+v", sandboxes.Calls, containers.Calls)
	}
	n := Node{Sandboxes: sandboxes.Sandboxes, Containers: containers.Containers}
	candidates, asked := Candidates(n, rules, time.Now()), 0
	ends, missed := ReadEnds(t.Context(), c, candidates, func(n int) { asked = n })
	if asked != len(candidates) {
		t.Fatalf("told of %d of %d", asked, len(candidates))
	}
	if missed.Count > 0 {
		t.Fatalf("%d ends could not be had: %s", missed.Count, missed.First)
	}
	n.Ends = ends
	return n, Make(n, rules, time.Now())
}

// left returns the ids that the runtime still holds.
func left(t *testing.T, c *crictl.Client) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, s := range c.ListPodSandbox(t.Context(), crictl.Filter{}, "").Sandboxes {
		out[s.ID] = true
	}
	for _, k := range c.ListContainers(t.Context(), crictl.Filter{}, "").Containers {
		out[k.ID] = true
	}
	return out
}

// verify checks a result against what the runtime holds now: nothing is claimed that is not so, every candidate is
// accounted for once, and nothing but candidates has gone.
func verify(t *testing.T, before Node, plan Plan, r Result, after map[string]bool) {
	t.Helper()
	planned := map[string]bool{}
	gone := 0
	for _, v := range plan.Remove {
		planned[v.ID] = true
		if !after[v.ID] {
			gone++
		}
	}
	for _, k := range before.Containers {
		if !planned[k.ID] && !after[k.ID] {
			t.Errorf("container %s (%s) has gone, and was no candidate", k.ID, k.State)
		}
	}
	for _, s := range before.Sandboxes {
		if !planned[s.ID] && !after[s.ID] {
			t.Errorf("sandbox %s (%s) has gone, and was no candidate", s.ID, s.State)
		}
	}
	if got := r.Removed + len(r.Skipped) + len(r.Failed) + r.Left; got != len(plan.Remove) {
		t.Errorf("%d removed + %d skipped + %d failed + %d left = %d, of %d planned", r.Removed, len(r.Skipped),
			len(r.Failed), r.Left, got, len(plan.Remove))
	}
	if r.Removed > gone {
		t.Errorf("%d are said to be removed, and %d have gone", r.Removed, gone)
	}
}

func audit(t *testing.T, count int) *Audit {
	t.Helper()
	a, err := OpenAudit(filepath.Join(t.TempDir(), "audit"), here(), count, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func here() Identity {
	return Identity{
		MachineID: "0123456789abcdef", BootID: "boot-1", Endpoint: "unix:///run/fake.sock", RuntimeName: "containerd",
		RuntimeVersion: "v2.1.4",
	}
}
