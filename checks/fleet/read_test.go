package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kdiag/kdiag/checks"
)

const (
	nodesPath  = "/api/v1/nodes"
	podsPath   = "/api/v1/pods"
	eventsPath = "/api/v1/events"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// noon is the time of the server, whose clock is not that of the test.
var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

func kubeNode(name string, ready v1.ConditionStatus, more ...v1.NodeCondition) v1.Node {
	return v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"team": "shop"},
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour).Local()),
			OwnerReferences:   []metav1.OwnerReference{{Kind: "Machine", Name: "m-" + name}},
		},
		Spec: v1.NodeSpec{Unschedulable: name == "n0001"},
		Status: v1.NodeStatus{
			NodeInfo:   v1.NodeSystemInfo{KubeletVersion: "v1.36.2"},
			Conditions: append([]v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}, more...),
			Images:     []v1.ContainerImage{{Names: []string{"registry.example/shop:1"}}},
		},
	}
}

func lease(name string, renewed time.Time) coordinationv1.Lease {
	at := metav1.NewMicroTime(renewed)
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &at},
	}
}

func kubePod(name, node, ownerKind, owner string) v1.Pod {
	return v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "kube-system", OwnerReferences: []metav1.OwnerReference{{Kind: ownerKind, Name: owner}},
		},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
}

func warned(node, reason string, age time.Duration) v1.Event {
	return v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: node + reason, Namespace: "default"},
		InvolvedObject: v1.ObjectReference{Kind: "Node", Name: node}, Reason: reason, Message: reason + " happened\n",
		LastTimestamp: metav1.NewTime(noon.Add(-age)),
	}
}

// large returns a server with 1,200 nodes: n0000 is not ready, n0001 has a problem by its agent.
func large() *server {
	nodes, leases, pods, events := &v1.NodeList{}, &coordinationv1.LeaseList{}, &v1.PodList{}, &v1.EventList{}
	for i := range 1200 {
		n := kubeNode(fmt.Sprintf("n%04d", i), v1.ConditionTrue)
		switch i {
		case 0:
			n = kubeNode(n.Name, v1.ConditionFalse)
		case 1:
			n = kubeNode(n.Name, v1.ConditionTrue, v1.NodeCondition{Type: agentCondition, Status: v1.ConditionTrue})
		}
		nodes.Items = append(nodes.Items, n)
		leases.Items = append(leases.Items, lease(n.Name, noon.Add(-time.Duration(i)*time.Second)))
	}
	leases.Items[2].Spec.RenewTime = nil
	pods.Items = []v1.Pod{
		kubePod("a", "n0000", "ReplicaSet", "web"), kubePod("b", "n0000", "DaemonSet", "proxy"),
		kubePod("c", "n0000", "DaemonSet", "net"), kubePod("d", "n0000", "DaemonSet", "net"),
		kubePod("e", "n0002", "DaemonSet", "net"), kubePod("f", "elsewhere", "Job", "sum"),
	}
	for i := range 7 {
		events.Items = append(events.Items, warned("n0000", fmt.Sprintf("R%d", i), time.Duration(i)*11*time.Minute))
	}
	series := warned("n0001", "Series", 0)
	series.LastTimestamp, series.Series = metav1.Time{}, &v1.EventSeries{
		Count: 9, LastObservedTime: metav1.NewMicroTime(noon.Add(-time.Minute)),
	}
	events.Items = append(events.Items, series, warned("n0003", "Healthy", time.Minute))
	return &server{clock: atNoon, lists: map[string]runtime.Object{
		nodesPath: nodes, leasesPath: leases, podsPath: pods, eventsPath: events,
	}}
}

func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a clock that is behind by decades
		api := large()
		s, err := connect(t, api).Read(t.Context(), Options{Selector: "team=shop", Pods: true})
		must(t, err)
		testSnapshot(t, s)
		want := []string{
			eventsPath + "?fieldSelector=involvedObject.kind%3DNode%2Ctype%3DWarning&limit=500",
			nodesPath + "?continue=1000&labelSelector=team%3Dshop&limit=500",
			nodesPath + "?continue=500&labelSelector=team%3Dshop&limit=500",
			nodesPath + "?labelSelector=team%3Dshop&limit=500",
			podsPath + "?fieldSelector=spec.nodeName%21%3D%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&limit=500",
			leasesPath + "?continue=1000&limit=500", leasesPath + "?continue=500&limit=500", leasesPath + "?limit=500",
		}
		diff := cmp.Diff(want, slices.Sorted(slices.Values(api.requests())))
		if diff != "" || s.Cost.Requests != len(want) || s.Cost.Bytes < 100_000 {
			t.Errorf("%s\ncost %+v", diff, s.Cost)
		}
	})
}

func testSnapshot(t *testing.T, s *Snapshot) {
	t.Helper()
	if !s.At.Equal(noon) || s.reading.version != "7" || !s.Pods || s.Problems != nil || len(s.Nodes) != 1200 {
		t.Fatalf("at %s, version %s, pods %t, problems %q, %d nodes",
			s.At, s.reading.version, s.Pods, s.Problems, len(s.Nodes))
	}
	node := func(name string) Node {
		return Node{
			Name: name, Created: noon.Add(-time.Hour), Labels: map[string]string{"team": "shop"},
			Owner: "Machine/m-" + name, Info: v1.NodeSystemInfo{KubeletVersion: "v1.36.2"},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		}
	}
	want := []Node{node("n0000"), node("n0001"), node("n0002"), node("n0003")}
	want[0].Conditions[0].Status = v1.ConditionFalse
	want[0].Renewed, want[1].Renewed, want[3].Renewed = noon, noon.Add(-time.Second), noon.Add(-3*time.Second)
	want[0].Pods, want[0].DaemonSets = 4, []string{"kube-system/net", "kube-system/proxy"}
	want[2].Pods, want[2].DaemonSets = 1, []string{"kube-system/net"}
	for i := range 5 {
		reason := fmt.Sprintf("R%d", i)
		want[0].Events = append(want[0].Events, checks.FleetNodeEvent{
			At: noon.Add(-time.Duration(i) * 11 * time.Minute), Reason: reason, Message: reason + " happened", Count: 1,
		})
	}
	want[1].Unschedulable = true
	want[1].Conditions = append(want[1].Conditions, v1.NodeCondition{Type: agentCondition, Status: v1.ConditionTrue})
	want[1].Events = []checks.FleetNodeEvent{
		{At: noon.Add(-time.Minute), Reason: "Series", Message: "Series happened", Count: 9},
	}
	equal(t, "nodes", want, s.Nodes[:4])
	if last := s.Nodes[1199]; last.Name != "n1199" || !last.Renewed.Equal(noon.Add(-1199*time.Second)) {
		t.Errorf("the last node is %+v", last)
	}
}

// TestReadFails also lets the second chunk expire, once or more often. The server may offer to go on.
func TestReadFails(t *testing.T) {
	expired := func(times int, offer string) *server {
		api := large()
		api.fail(func(req *http.Request) *metav1.Status {
			if req.URL.Path != nodesPath || !req.URL.Query().Has("continue") || times == 0 {
				return nil
			}
			times--
			return &metav1.Status{
				Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old", ListMeta: metav1.ListMeta{Continue: offer},
			}
		})
		return api
	}
	denied := func(resources ...string) *server {
		api := large()
		api.fail(forbids(resources...))
		return api
	}
	for _, tt := range []struct {
		api      *server
		want     string
		problems []string
	}{
		{denied("nodes"), `listing nodes: nodes is forbidden: User "eve" cannot list it`, nil},
		{denied("leases", "events", "pods"), "", []string{
			`listing events: events is forbidden: User "eve" cannot list it`,
			`listing leases: leases is forbidden: User "eve" cannot list it`,
			`listing pods: pods is forbidden: User "eve" cannot list it`,
		}},
		{expired(1, "500"), "", nil},
		{expired(2, "500"), "listing nodes: too old", nil},
	} {
		s, err := connect(t, tt.api).Read(t.Context(), Options{Pods: true})
		if tt.want != "" {
			if err == nil || err.Error() != tt.want || s != nil {
				t.Errorf("%v, want %s", err, tt.want)
			}
			continue
		}
		must(t, err)
		if diff := cmp.Diff(tt.problems, s.Problems); diff != "" || len(s.Nodes) != 1200 ||
			s.Pods != (tt.problems == nil) || s.Nodes[0].Renewed.IsZero() == s.Pods ||
			s.At.Sub(noon).Abs() > time.Minute { // by the server's clock
			t.Errorf("%s\n%d nodes, pods %t, at %s", diff, len(s.Nodes), s.Pods, s.At)
		}
	}
}
