package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// A recorder answers each request with one document, and keeps what it was asked.
type recorder struct {
	status   int
	answer   any
	asked    []string // method, path and query
	accept   string
	kind     string // content type
	body     []byte
	identity string
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.asked = append(r.asked, req.Method+" "+req.URL.RequestURI())
	r.accept, r.kind, r.identity = req.Header.Get("Accept"), req.Header.Get("Content-Type"), req.Header.Get("Authorization")
	r.body, _ = io.ReadAll(req.Body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(r.answer)
}

func serve(t *testing.T, r *recorder, contentType string, limits Limits) *Client {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	client, err := New(&rest.Config{
		Host: server.URL, BearerToken: "secret", ContentConfig: rest.ContentConfig{ContentType: contentType},
	}, limits)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func meta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, ResourceVersion: "7"}
}

// TestCalls makes each call: what the API server is asked, that what is sent arrives, and that the answer comes back.
func TestCalls(t *testing.T) {
	p := &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: meta("web", "shop")}
	node := &v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: meta("n1", "")}
	lease := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}, ObjectMeta: meta("n1", v1.NamespaceNodeLease)}
	settings := &v1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: meta("settings", "shop")}
	key := &v1.Secret{TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}, ObjectMeta: meta("key", "shop")}
	event := &v1.Event{TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}, ObjectMeta: meta("web.1", "shop"), Reason: "Started"}
	token := &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"}, Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"a"}},
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	patch := []byte(`{"status":{"phase":"Running"}}`)
	for _, tt := range []struct {
		want   string
		sent   any // the body's content, or nil
		answer runtime.Object
		call   func(ctx context.Context, c *Client) (runtime.Object, error)
	}{
		{"GET /api/v1/namespaces/shop/pods/web", nil, p, func(ctx context.Context, c *Client) (runtime.Object, error) { return c.GetPod(ctx, "shop", "web") }},
		{"POST /api/v1/namespaces/shop/pods", p, p, func(ctx context.Context, c *Client) (runtime.Object, error) { return c.CreatePod(ctx, p) }},
		{
			"PATCH /api/v1/namespaces/shop/pods/web/status", patch, p,
			func(ctx context.Context, c *Client) (runtime.Object, error) {
				return c.PatchPodStatus(ctx, "shop", "web", patch)
			},
		},
		{
			"GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1&timeout=30s&timeoutSeconds=30", nil,
			&v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{*p}},
			func(ctx context.Context, c *Client) (runtime.Object, error) {
				return c.ListPods(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1", TimeoutSeconds: new(int64(30))})
			},
		},
		{"GET /api/v1/nodes/n1", nil, node, func(ctx context.Context, c *Client) (runtime.Object, error) { return c.GetNode(ctx, "n1") }},
		{"POST /api/v1/nodes", node, node, func(ctx context.Context, c *Client) (runtime.Object, error) { return c.CreateNode(ctx, node) }},
		{"PATCH /api/v1/nodes/n1/status", patch, node, func(ctx context.Context, c *Client) (runtime.Object, error) {
			return c.PatchNodeStatus(ctx, "n1", patch)
		}},
		{"GET " + leases + "/n1", nil, lease, func(ctx context.Context, c *Client) (runtime.Object, error) { return c.GetLease(ctx, "n1") }},
		{"POST " + leases, lease, lease, func(ctx context.Context, c *Client) (runtime.Object, error) { return c.CreateLease(ctx, lease) }},
		{"PUT " + leases + "/n1", lease, lease, func(ctx context.Context, c *Client) (runtime.Object, error) { return c.UpdateLease(ctx, lease) }},
		{"GET /api/v1/namespaces/shop/configmaps/settings", nil, settings, func(ctx context.Context, c *Client) (runtime.Object, error) {
			return c.GetConfigMap(ctx, "shop", "settings")
		}},
		{"GET /api/v1/namespaces/shop/secrets/key", nil, key, func(ctx context.Context, c *Client) (runtime.Object, error) { return c.GetSecret(ctx, "shop", "key") }},
		{"POST /api/v1/namespaces/shop/serviceaccounts/clerk/token", token, token, func(ctx context.Context, c *Client) (runtime.Object, error) {
			return c.CreateToken(ctx, "shop", "clerk", token)
		}},
		{"POST /api/v1/namespaces/shop/events", event, event, func(_ context.Context, c *Client) (runtime.Object, error) { return c.Events().Create(event) }},
		{"PUT /api/v1/namespaces/shop/events/web.1", event, event, func(_ context.Context, c *Client) (runtime.Object, error) { return c.Events().Update(event) }},
		{"PATCH /api/v1/namespaces/shop/events/web.1", patch, event, func(_ context.Context, c *Client) (runtime.Object, error) {
			return c.Events().Patch(event, patch)
		}},
	} {
		t.Run(tt.want, func(t *testing.T) {
			r := &recorder{status: http.StatusOK, answer: tt.answer}
			c := serve(t, r, "application/json", Limits{QPS: 50, Burst: 100, EventQPS: 50, EventBurst: 100})
			got, err := tt.call(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tt.want}, r.asked); diff != "" {
				t.Error(diff)
			}
			if r.identity != "Bearer secret" {
				t.Errorf("came as %q", r.identity)
			}
			got.GetObjectKind().SetGroupVersionKind(tt.answer.GetObjectKind().GroupVersionKind()) // which decoding drops
			if diff := cmp.Diff(tt.answer, got); diff != "" {
				t.Errorf("answer: %s", diff)
			}
			switch sent := tt.sent.(type) {
			case []byte:
				if string(r.body) != string(sent) || r.kind != string(types.StrategicMergePatchType) {
					t.Errorf("sent %q as %q", r.body, r.kind)
				}
			case runtime.Object:
				want, _ := json.Marshal(sent)
				if diff := cmp.Diff(string(want), strings.TrimSpace(string(r.body))); diff != "" {
					t.Errorf("sent: %s", diff)
				}
			}
		})
	}
}

func TestDeletePod(t *testing.T) {
	r := &recorder{status: http.StatusOK, answer: metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"}}
	c := serve(t, r, "application/json", Limits{QPS: 50, Burst: 100})
	opts := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions("uid")}
	if err := c.DeletePod(t.Context(), "shop", "web", opts); err != nil {
		t.Fatal(err)
	}
	if got := r.asked[0]; got != "DELETE /api/v1/namespaces/shop/pods/web" {
		t.Error(got)
	}
	want := `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"uid"}}`
	if diff := cmp.Diff(want, strings.TrimSpace(string(r.body))); diff != "" {
		t.Error(diff)
	}
}

// TestProtobuf has a kubelet's content type: it sends protobuf, asks for it, and takes JSON as well.
func TestProtobuf(t *testing.T) {
	p := &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: meta("web", "shop")}
	r := &recorder{status: http.StatusCreated, answer: p}
	got, err := serve(t, r, protobuf, Limits{QPS: 50, Burst: 100}).CreatePod(t.Context(), p)
	if err != nil || got.Name != "web" {
		t.Errorf("%v, %v", got, err)
	}
	if r.kind != protobuf || !strings.HasPrefix(r.accept, protobuf) || !strings.HasPrefix(string(r.body), "k8s\x00") {
		t.Errorf("sent %q as %q, asked for %q", r.body, r.kind, r.accept)
	}
}

// TestHeartbeatsAreNotHeldBack uses up what the limit allows, and still reports the node.
func TestHeartbeatsAreNotHeldBack(t *testing.T) {
	r := &recorder{status: http.StatusOK, answer: &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}}
	c := serve(t, r, "application/json", Limits{QPS: 1e-6, Burst: 1, EventQPS: 1e-6, EventBurst: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	if _, err := c.GetPod(ctx, "shop", "web"); err != nil {
		t.Fatal(err)
	}
	r.answer = &v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}}
	for range 5 {
		if _, err := c.GetNode(ctx, "n1"); err != nil {
			t.Fatal(err)
		}
	}
	r.answer = &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}}
	for range 5 {
		if _, err := c.GetLease(ctx, "n1"); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if _, err := c.GetPod(ctx, "shop", "web"); err == nil {
		t.Error("a second pod was not held back")
	}
	if len(r.asked) != 11 {
		t.Errorf("asked %d times: %v", len(r.asked), r.asked)
	}
}

// TestScheme holds Events to what client-go's record wants: a sink, and a scheme that names the kind of what events
// are about.
func TestScheme(t *testing.T) {
	var _ record.EventSink = Events{}
	kinds, _, err := Scheme().ObjectKinds(&v1.Pod{})
	if diff := cmp.Diff([]schema.GroupVersionKind{v1.SchemeGroupVersion.WithKind("Pod")}, kinds); err != nil || diff != "" {
		t.Errorf("%s, %v", diff, err)
	}
}
