package kubelet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/internal/testkit"
)

// apiserver serves like one: its certificate is for that time, it knows nodes by their certificate, and its clock is
// off by skew.
func apiserver(
	t *testing.T, i issuer, from, to time.Time, skew time.Duration,
) (url string, connections *atomic.Int32) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
		switch r.URL.Path {
		case "/readyz":
			fmt.Fprint(w, "ok")
		case "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1":
			if knownByCertificate(r) != http.StatusOK {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, `{"kind":"Lease","spec":{"leaseDurationSeconds":40,"renewTime":%q}}`,
				time.Now().Add(-time.Minute).UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
		case "/api/v1/nodes/worker-1":
			fmt.Fprint(w, `{"kind":"Node","spec":{"taints":[{"key":"dedicated","effect":"NoSchedule"}]},"status":{
				"nodeInfo":{"kubeletVersion":"v1.36.2"},"conditions":[{"type":"Ready","status":"Unknown",
				"reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status.",
				"lastTransitionTime":"2026-11-22T09:12:13Z"}]}}`)
		case "/api/v1/nodes/deleted":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
		case "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/deleted":
			w.WriteHeader(http.StatusNotFound)
		default:
			t.Errorf("asked for %s", r.URL.Path)
		}
	}))
	server.TLS = i.serving(from, to)
	server.Config.ErrorLog = quiet()
	connections = counted(server)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, connections
}

func TestAskServer(t *testing.T) {
	authority := newIssuer(t)
	before, after := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	good, connections := apiserver(t, authority, before, after, -10*time.Minute)
	year := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	expired, _ := apiserver(t, authority, year, year.AddDate(1, 0, 0), 0)
	certificate, key := authority.node()
	byCertificate := "client-certificate: n.pem\n    client-key: n.pem"
	answered := Server{Reachable: true, Status: 200, Skew: -10 * time.Minute, SkewKnown: true}
	leased, byProgram, deleted := answered, answered, answered
	leased.LeaseRead, leased.LeaseAge = true, time.Minute
	leased.Node = &NodeObject{Kind: "Node"}
	leased.Node.Spec.Taints = []struct{ Key, Effect string }{{"dedicated", "NoSchedule"}}
	leased.Node.Status.NodeInfo.KubeletVersion = "v1.36.2"
	leased.Node.Status.Conditions = []NodeCondition{{
		Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown",
		Message:            "Kubelet stopped posting node status.",
		LastTransitionTime: time.Date(2026, 11, 22, 9, 12, 13, 0, time.UTC),
	}}
	byProgram.LeaseErr = "the kubelet gets its credential from a program, which kdiag does not run"
	byProgram.NodeErr = byProgram.LeaseErr
	deleted.NodeGone, deleted.NodeErr, deleted.LeaseErr = true, "404 Not Found", "404 Not Found"
	for _, tc := range []struct {
		name, url, user string
		want            Server
	}{
		{"a node that was deleted", good, byCertificate, deleted},
		{"by certificate", good, byCertificate, leased},
		{"by a program", good, "exec: {command: aws}", byProgram},
		{
			"expired", expired, byCertificate,
			Server{TLSError: "(CN=server, until 2021-01-01 00:00:00): certificate has expired"},
		},
		{
			"no name, so no resolver is asked", "https://kdiag..invalid:1", byCertificate,
			Server{Err: "DNS: kdiag..invalid does not resolve"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := testkit.NewTree(t)
			h.Write("kubelet.conf", kubeconfig(tc.url, tc.user), "ca.crt", authority.pem, "n.pem", certificate+key)
			settings := Settings{Kubeconfig: "/kubelet.conf", NodeName: "worker-1"}
			if tc.want.NodeGone {
				settings.NodeName = "deleted"
			}
			connections.Store(0)
			got, err := AskServer(t.Context(), h.Root, settings)
			must(t, err)
			if n := connections.Load(); tc.want.Reachable && n != 1 {
				t.Errorf("%d connections", n)
			}
			tc.want.URL = tc.url
			within := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= 5*time.Second })
			ends := cmp.FilterPath(func(p cmp.Path) bool {
				return p.Last().String() == ".TLSError" || p.Last().String() == ".Err"
			}, cmp.Comparer(func(a, b string) bool {
				return a == b || min(len(a), len(b)) > 0 && (strings.Contains(a, b) || strings.Contains(b, a))
			}))
			equal(t, tc.want, got, cmpopts.IgnoreFields(Server{}, "Took"), within, ends)
		})
	}
}

// TestAskServerCannot has kubeconfigs that cannot be used. No error quotes them: they hold secrets.
func TestAskServerCannot(t *testing.T) {
	const malformed, noCluster = "/kubelet.conf is not a kubeconfig", "/kubelet.conf has no cluster for its current context"
	for text, want := range map[string]string{
		"": noCluster, "current-context: secret\n": noCluster,
		"secret: {\n": malformed, "users: [{user: {token: [secret]}}]\n": malformed,
		kubeconfig("nowhere", "token: x"):   "/kubelet.conf names a server that is not a URL",
		kubeconfig("https://a", "token: x"): "/ca.crt does not exist",
	} {
		h := testkit.NewTree(t)
		h.Write("kubelet.conf", text)
		_, err := AskServer(t.Context(), h.Root, Settings{Kubeconfig: "/kubelet.conf"})
		equal(t, "asking the API server: "+want, fmt.Sprint(err))
	}
	_, err := AskServer(t.Context(), t.TempDir(), Settings{})
	equal(t, "asking the API server: the kubelet has no kubeconfig", fmt.Sprint(err))
}
