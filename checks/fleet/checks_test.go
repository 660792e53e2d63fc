package fleet

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
)

const (
	apiServicePath = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
	metricsPath    = "/apis/metrics.k8s.io/v1beta1/nodes"
	servicePath    = "/api/v1/namespaces/kube-system/services/metrics-server"
	endpointsPath  = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
	podsOfPath     = "/api/v1/namespaces/kube-system/pods"
	mutatingPath   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	validatingPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
)

// wellDocs are the documents of a cluster that is well, with a webhook that is in nobody's way.
func wellDocs() map[string]string {
	return map[string]string{
		"/version": `{"major": "1", "minor": "36+", "gitVersion": "v1.36.2-eks-1"}`,
		apiServicePath: `{"spec": {"service": {"namespace": "kube-system", "name": "metrics-server", "port": 443}},
			"status": {"conditions": [{"type": "Available", "status": "True", "lastTransitionTime": "2026-11-23T11:00:00Z"}]}}`,
		metricsPath:    `{"items": [{"metadata": {"name": "a"}}]}`,
		mutatingPath:   `{"items": []}`,
		validatingPath: hook(`"resources": ["pods"], "scope": "*"`, ``),
		servicePath:    `{"spec": {"selector": {"k8s-app": "metrics-server"}}}`,
		endpointsPath:  `{"items": [{"endpoints": [{"conditions": {"ready": false}}]}, {"endpoints": [{}]}]}`,
		podsOfPath:     `{"items": []}`,
	}
}

// hook is a list with one webhook of metrics-server's Service, for every group and operation.
func hook(rule, more string) string {
	return `{"items": [{"webhooks": [{"name": "guard.example.com", "timeoutSeconds": 10, ` + more + `
		"clientConfig": {"service": {"namespace": "kube-system", "name": "metrics-server"}},
		"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], ` + rule + `}]}]}]}`
}

// nobody is what the endpoints of a service without a ready pod are.
const nobody = `{"items": [{"endpoints": [{"conditions": {"ready": false}}]}]}`

// aged returns a node with a lease of an age, and a kubelet.
func aged(name string, ready v1.ConditionStatus, age time.Duration, kubelet string) Node {
	object := kubeNode(name, ready)
	n := nodeOf(&object)
	n.Renewed, n.Info.KubeletVersion = noon.Add(-age), kubelet
	return n
}

const (
	blocked = "validating webhook guard.example.com (failurePolicy Fail, timeout 10s) is asked about "
	guard   = " by Service kube-system/metrics-server"
)

func TestCheck(t *testing.T) {
	ok, warning, critical, unknown, skipped := checks.StatusOK, checks.StatusWarning, checks.StatusCritical,
		checks.StatusUnknown, checks.StatusSkipped
	const v = "v1.36.2"
	for _, tt := range []struct {
		name    string
		docs    map[string]string // in place of those of a cluster that is well; empty: absent
		forbid  []string
		nodes   []Node // nil: one that is well
		id      string
		status  checks.Status
		summary string
	}{
		{id: "cluster.metrics", status: ok, summary: "metrics-server answers in 10ms"},
		{
			name: "not installed", docs: map[string]string{apiServicePath: ""}, id: "cluster.metrics", status: skipped,
			summary: "metrics-server is not installed: there is no APIService v1beta1.metrics.k8s.io",
		},
		{
			name: "a crash loop", id: "cluster.metrics", status: critical,
			docs: map[string]string{
				apiServicePath: `{"spec": {"service": {"namespace": "kube-system", "name": "metrics-server"}},
"status": {"conditions":
					[{"type": "Available", "status": "False", "reason": "MissingEndpoints", "message": "no addresses"}]}}`,
				metricsPath: "", endpointsPath: nobody,
				podsOfPath: `{"items": [{"metadata": {"name": "m-1"}, "spec": {"nodeName": "a"}, "status": {"phase": "Running",
					"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}, {"metadata": {"name": "m-2"},
					"status": {"phase": "Pending"}}]}`,
			},
			summary: "APIService v1beta1.metrics.k8s.io is not available: MissingEndpoints: no addresses; a request " +
				"fails after 10ms: not found; Service kube-system/metrics-server has no ready endpoint; pod m-1 on a is " +
				"CrashLoopBackOff; pod m-2 on no node is Pending",
		},
		{
			name: "forbidden", forbid: []string{"v1beta1.metrics.k8s.io"}, id: "cluster.metrics", status: unknown,
			summary: "the APIService v1beta1.metrics.k8s.io cannot be read: v1beta1.metrics.k8s.io is forbidden: " +
				`User "eve" cannot list it`,
		},
		{id: "cluster.skew", status: ok, summary: "the API server is 1.36; kubelets: v1.36.2 on 1 node"},
		{
			name: "skew", id: "cluster.skew", status: critical,
			nodes: []Node{
				aged("a", "True", 0, "v1.37.0"), aged("b", "True", 0, "v1.33.9-eks-1"), aged("c", "True", 0, "v1.32.1"),
				aged("d", "True", 0, "v1.32.1"), aged("e", "True", 0, "v1.32.1"), aged("f", "True", 0, "v1.32.1"),
				aged("g", "True", 0, ""),
			},
			summary: "the API server is 1.36, which supports its own and the 3 minor versions before: kubelet v1.32.1 on " +
				"4 nodes (c, d, e and 1 more) is too old; v1.37.0 on 1 node (a) is newer",
		},
		{id: "cluster.leases", status: ok, summary: "leases and Ready agree on 1 node"},
		{
			name: "every disagreement", id: "cluster.leases", status: critical,
			nodes: []Node{
				aged("a", "False", 39*time.Second, v), aged("b", "Unknown", 5*time.Second, v), aged("c", "True", 40*time.Second, v),
				aged("d", "False", 40*time.Second, v), aged("e", "Unknown", time.Hour, v), aged("f", "False", 0, v),
			},
			summary: "2 nodes (a and f): not Ready, and the lease is renewed: the kubelet runs, and its runtime, PLEG or " +
				"network is at fault; 1 node (b): Unknown, and the lease is renewed: the kubelet runs, and posts no status; " +
				"1 node (c): Ready, and the lease is older than 40s: the kubelet has stopped or cannot reach the API server",
		},
		{id: "cluster.webhooks", status: ok, summary: "no webhook can block the heartbeats of nodes"},
		{
			name: "blocks all", id: "cluster.webhooks", status: critical,
			docs: map[string]string{validatingPath: hook(`"resources": ["*/*"]`, ""), endpointsPath: nobody},
			summary: blocked + "nodes/status and leases" + guard +
				": Service kube-system/metrics-server has no ready endpoint, and no pod has its labels",
		},
		{
			name: "can block leases", id: "cluster.webhooks", status: warning,
			docs:    map[string]string{validatingPath: hook(`"resources": ["*"]`, `"matchConditions": [{"name": "x"}],`)},
			summary: blocked + "leases" + guard + ", except where its matchConditions exclude them",
		},
		{
			name: "ignored", docs: map[string]string{validatingPath: hook(`"resources": ["*/*"]`, `"failurePolicy": "Ignore",`)},
			id: "cluster.webhooks", status: ok, summary: "no webhook can block the heartbeats of nodes",
		},
		{
			name: "of other namespaces and nodes", id: "cluster.webhooks", status: ok,
			docs: map[string]string{validatingPath: hook(`"resources": ["*/*"]`, `"objectSelector": {"matchLabels":
				{"team": "other"}}, "namespaceSelector": {"matchExpressions":
				[{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-node-lease"]}]},`)},
			summary: "no webhook can block the heartbeats of nodes",
		},
		{id: "cluster.clocks", status: ok, summary: "no heartbeat is ahead of the API server's clock"},
		{
			name: "ahead", id: "cluster.clocks", status: warning,
			nodes: []Node{
				aged("a", "True", -2*time.Second, v), aged("b", "True", -3*time.Second, v),
				aged("c", "True", -time.Hour, v),
			},
			summary: "the clock of 2 nodes is ahead of the API server's: c by 1h and b by 3s",
		},
	} {
		testkit.Bubble(t, tt.id+" "+tt.name, func(t *testing.T) {
			api := &server{docs: wellDocs()}
			for path, doc := range tt.docs {
				api.docs[path] = doc
			}
			api.fail(forbids(tt.forbid...))
			if tt.nodes == nil {
				tt.nodes = []Node{aged("a", "True", 5*time.Second, v)}
			}
			all := connect(t, api).Check(t.Context(), &Snapshot{At: noon, Nodes: tt.nodes})
			got := all[slices.IndexFunc(all, func(r checks.Result) bool { return r.ID == tt.id })]
			got.DurationSeconds = nil
			equal(t, "the result", checks.Result{ID: tt.id, Status: tt.status, Summary: tt.summary}, got)
		})
	}
}
