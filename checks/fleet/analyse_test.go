package fleet

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
)

// condition is a condition of a node that has not changed for an hour, and was last written so long ago.
func condition(kind, status, reason, message string, age time.Duration) v1.NodeCondition {
	return v1.NodeCondition{
		Type: v1.NodeConditionType(kind), Status: v1.ConditionStatus(status), Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)), LastHeartbeatTime: metav1.NewTime(noon.Add(-age)),
	}
}

// machine is a node with a lease that is 5 s old.
func machine(name string, conditions ...v1.NodeCondition) Node {
	return Node{
		Name: name, Created: noon.Add(-30 * 24 * time.Hour), Renewed: noon.Add(-5 * time.Second), Conditions: conditions,
		Labels: map[string]string{v1.LabelTopologyZone: "a", v1.LabelInstanceTypeStable: "m5.large"},
		Info: v1.NodeSystemInfo{
			KubeletVersion: "v1.36.2", ContainerRuntimeVersion: "containerd://2.1.4", KernelVersion: "6.8.0-1021-aws",
			OSImage: "Ubuntu 24.04.3 LTS",
		},
	}
}

// The messages and reasons of Ready as kubelets and the node controller write them.
const (
	pleg = "PLEG is not healthy: pleg was last seen active 3m5.9s ago; threshold is 3m0s"
	cni  = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network " +
		"plugin returns error: cni plugin not initialized"
	down = "container runtime is down"
)

func healthy(name string) Node {
	return machine(name, condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", 0))
}

func notReady(name, message string, more ...v1.NodeCondition) Node {
	return machine(name, append(more, condition("Ready", "False", "KubeletNotReady", message, 0))...)
}

func silent(name string, lease time.Duration, more ...v1.NodeCondition) Node {
	n := machine(name, append(more, condition("Ready", "Unknown", "NodeStatusUnknown",
		"Kubelet stopped posting node status.", 0))...)
	n.Renewed = noon.Add(-lease)
	return n
}

// logs gives a node a log with a cause that goes on.
func logs(n Node, cause string) Node {
	n.Log = &checks.FleetLog{Status: checks.Unhealthy, Cause: cause, Summary: "x", Ongoing: true}
	return n
}

func report(nodes ...Node) *checks.FleetReport { return Report(&Snapshot{At: noon, Nodes: nodes}) }

// TestCause has the group of each way to be sick.
func TestCause(t *testing.T) {
	found := condition("KdiagProblem", "True", "ListHang", "ListHang: ListContainers hangs", 0)
	const byHandN = "scp $(command -v kdiag) n:/tmp/ && ssh n sudo /tmp/kdiag node" // no image is known without agents
	fine := condition("KdiagProblem", "False", "NoProblemFound", "no critical cause found", 0)
	for _, tt := range []struct {
		name    string
		node    Node
		want    string // empty where the node is not sick
		summary string // a part of it
		first   string // command
	}{
		{"well", healthy("n"), "", "", ""},
		{"down before PLEG", notReady("n", "["+down+", "+pleg+"]"), "RuntimeDown", down, byHandN},
		{"network before PLEG", notReady("n", "["+pleg+", "+cni+"]"), "NetworkNotReady", "", ""},
		{
			"runtime", notReady("n", "container runtime not ready: RuntimeReady=false reason:X message:y"),
			"RuntimeNotReady", "RuntimeReady=false", "",
		},
		{"shutdown", notReady("n", "["+pleg+", node is shutting down]"), "NodeShutdown", "shutting down", ""},
		{"other", notReady("n", "CSINode is not yet initialized"), "KubeletNotReady", "NotReady: CSINode", ""},
		{"silent", silent("n", 5*time.Minute), "NodeStatusUnknown", "silent", "kubectl describe node n"},
		{"status refused", silent("n", 3*time.Second), "NodeStatusNotUpdated", "renews its lease", ""},
		{"never", machine("n"), "NodeStatusNeverUpdated", "no condition Ready", ""},
		{"agent", notReady("n", pleg, found), "ListHang", "ListContainers hangs", "kdiag fleet report n"},
		{"agent alone", machine("n", append(healthy("").Conditions, found)...), "ListHang", "", "kdiag fleet report n"},
		{"agent of a silent node", silent("n", time.Hour, fine), "NodeStatusUnknown", "1 of them kdiag agent", ""},
		{
			"log", logs(notReady("n", pleg), "InspectHang"), "InspectHang", "by the kubelet's log: x",
			"kubectl get --raw '/api/v1/nodes/n/proxy/logs/?query=kubelet&tailLines=20000' | TZ=UTC kdiag journal",
		},
		{"log that says less", logs(notReady("n", down), "PLEGUnhealthy"), "RuntimeDown", "", byHandN},
		{"agent before log", logs(notReady("n", pleg, found), "InspectHang"), "ListHang", "", "kdiag fleet report n"},
		{"no code", notReady("n", pleg, condition("KdiagProblem", "True", "X;reboot", "X", 0)), "X;reboot", "", ""},
		{
			"stale agent", notReady("n", pleg, condition("KdiagProblem", "True", "ListHang", "ListHang: x", time.Hour)),
			"PLEGUnhealthy", "", byHandN,
		},
		{
			"stale agent of a well node",
			machine("n", append(healthy("").Conditions, condition("KdiagProblem", "True", "X", "X: x", 16*time.Minute))...),
			"", "", "",
		},
	} {
		r := report(tt.node)
		if r.Nodes[0].Cause != tt.want || (len(r.Groups) == 1) != (tt.want != "") {
			t.Errorf("%s: groups %+v, want %s", tt.name, r.Groups, tt.want)
		} else if tt.want != "" {
			g := r.Groups[0]
			if !strings.Contains(g.Summary, tt.summary) || !strings.HasPrefix(g.NextSteps[0].Command, tt.first) ||
				g.Cause != tt.want || r.Status != checks.Unhealthy || strings.Contains(fmt.Sprint(r.NextSteps), ";reboot") {
				t.Errorf("%s: group %+v", tt.name, g)
			}
		}
	}
}

// fleetOf is a cluster in which 37 sick nodes, and 3 of those that are well, run an old containerd.
func fleetOf(nodes int) (all []Node) {
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		n := healthy(name)
		switch {
		case i < 37:
			n = notReady(name, pleg, condition("KdiagProblem", "True", "ListHang",
				fmt.Sprintf("ListHang: ListContainers answers nothing for %ds", i/20), 0))
		case i < 40:
			n = silent(name, 5*time.Minute)
		}
		if i < 37 || i >= 40 && i < 43 {
			n.Info.ContainerRuntimeVersion = "containerd://1.7.5"
		}
		n.Owner, n.DaemonSets = "Machine/"+name, []string{"kube-system/kube-proxy"}
		n.Labels[v1.LabelTopologyZone] = string(rune('a' + i%3))
		all = append(all, n)
	}
	return all
}

// TestCommon has what a group has in common named, and nothing that chance explains.
func TestCommon(t *testing.T) {
	r := report(fleetOf(500)...)
	if len(r.Groups) != 2 || len(r.Groups[0].Nodes) != 37 {
		t.Fatalf("%d groups", len(r.Groups))
	}
	g := r.Groups[0]
	want := []checks.FleetCommon{{
		Key: "runtime", Value: "containerd://1.7.5", InGroup: checks.FleetShare{Nodes: 37, Of: 37},
		Elsewhere: checks.FleetShare{Nodes: 3, Of: 460},
	}}
	ignoreP := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".P" }, cmp.Ignore())
	equal(t, "in common", want, g.Common, ignoreP)
	// Two runtimes and three zones are compared; all else is of one node or of all.
	if p, exact := g.Common[0].P, 5*exactFisher(37, 37, 3, 460); math.Abs(p/exact-1) > 1e-9 {
		t.Errorf("p is %g, want %g", p, exact)
	}
	equal(t, "the summary", "ListContainers answers nothing for 0s (n0000)", g.Summary)
	equal(t, "what 3 nodes have in common", 0, len(r.Groups[1].Common))
	if !slices.Contains(g.Advisories, "containerd-9103") {
		t.Errorf("known bugs %v", g.Advisories)
	}
	for _, n := range [][]Node{fleetOf(40), append(fleetOf(2), fleetOf(60)[43:]...)} { // none is well; too few are sick
		if r := report(n...); len(r.Groups) == 0 || len(r.Groups[0].Common) != 0 {
			t.Errorf("%d nodes: %+v", len(n), r.Groups[0].Common)
		}
	}
}

// TestDocument writes the document that package render prints in its tests.
func TestDocument(t *testing.T) {
	nodes := append(fleetOf(38)[31:], fleetOf(54)[38:]...)
	nodes[8].Unschedulable = true
	for i := range nodes[9:11] {
		nodes[9+i].Info.ContainerRuntimeVersion = "containerd://2.1.4"
	}
	for i := range nodes {
		nodes[i].Name = fmt.Sprintf("ip-10-0-%d-%d.eu-west-1.compute.internal", i*37%256, i*91%256)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	nodes[0].Events = []checks.FleetNodeEvent{{
		At: noon.Add(-20 * time.Minute), Reason: "ListHang", Message: "confirmed: ListContainers hangs", Count: 3,
	}}
	r := Report(&Snapshot{
		At: noon, Nodes: nodes, Problems: []string{"events: forbidden"},
		Cost: checks.FleetRequests{Requests: 3, Seconds: 0.25, Bytes: 81920},
	})
	r.APIVersion, r.Kind, r.Command = checks.APIVersion, checks.KindFleetReport, "kdiag fleet"
	r.KdiagVersion, r.Cluster = "v0.0.0", "prod-eu"
	r.Checks = []checks.Result{
		{ID: "cluster.skew", Status: checks.StatusOK, Summary: "kubelets 1.36 of API server 1.37"},
		{ID: "cluster.metrics", Status: checks.StatusCritical, Summary: "v1beta1.metrics.k8s.io is not available"},
	}
	testkit.Golden(t, "../../cmd/internal/render/testdata/fleet.json", testkit.JSON(t, r, "  "))
}

// exactFisher is the probability in exact arithmetic.
func exactFisher(a, in, b, rest int64) float64 {
	sum, n := new(big.Int), a+b
	for k := a; k <= min(in, n); k++ {
		if n-k > rest {
			continue
		}
		sum.Add(sum, new(big.Int).Mul(new(big.Int).Binomial(in, k), new(big.Int).Binomial(rest, n-k)))
	}
	p, _ := new(big.Rat).SetFrac(sum, new(big.Int).Binomial(in+rest, n)).Float64()
	return p
}

// TestFisher compares with exact arithmetic: all tables of up to 12 and 12 nodes, and some large ones.
func TestFisher(t *testing.T) {
	check := func(a, in, b, rest int) {
		got, want := math.Exp(fisher(a, in, b, rest)), exactFisher(int64(a), int64(in), int64(b), int64(rest))
		if math.Abs(got-want) > 1e-9*want {
			t.Errorf("%d of %d and %d of %d: %g, want %g", a, in, b, rest, got, want)
		}
	}
	for in := range 13 {
		for rest := range 13 {
			for a := range in + 1 {
				for b := range rest + 1 {
					check(a, in, b, rest)
				}
			}
		}
	}
	check(37, 40, 3, 4960)
	check(700, 2000, 1050, 3000)
	if p := fisher(2500, 2500, 0, 2500); math.IsInf(p, 0) || p > -3000 {
		t.Errorf("the logarithm of p of two halves is %g", p)
	}
}
