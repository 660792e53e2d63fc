package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kdiag/kdiag/internal/testkit"
)

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
	h := req.Header
	r.accept, r.kind, r.identity = h.Get("Accept"), h.Get("Content-Type"), h.Get("Authorization")
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
	testkit.Must(t, err)
	return client
}

func meta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, ResourceVersion: "7"}
}

func kind(group, kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: group} }

// TestCalls makes each call: what the API server is asked, that what is sent arrives, and that the answer comes back.
func TestCalls(t *testing.T) {
	p := &v1.Pod{TypeMeta: kind("v1", "Pod"), ObjectMeta: meta("web", "shop")}
	pods := &v1.PodList{TypeMeta: kind("v1", "PodList"), Items: []v1.Pod{*p}}
	node := &v1.Node{TypeMeta: kind("v1", "Node"), ObjectMeta: meta("n1", "")}
	lease := &coordinationv1.Lease{
		TypeMeta: kind("coordination.k8s.io/v1", "Lease"), ObjectMeta: meta("n1", v1.NamespaceNodeLease),
	}
	settings := &v1.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: meta("settings", "shop")}
	key := &v1.Secret{TypeMeta: kind("v1", "Secret"), ObjectMeta: meta("key", "shop")}
	clerk := &v1.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: meta("clerk", "shop")}
	event := &v1.Event{TypeMeta: kind("v1", "Event"), ObjectMeta: meta("web.1", "shop"), Reason: "Started"}
	token := &authenticationv1.TokenRequest{
		TypeMeta: kind("authentication.k8s.io/v1", "TokenRequest"),
		Spec:     authenticationv1.TokenRequestSpec{Audiences: []string{"a"}},
	}
	review := &authenticationv1.TokenReview{
		TypeMeta: kind("authentication.k8s.io/v1", "TokenReview"), Spec: authenticationv1.TokenReviewSpec{Token: "t"},
	}
	access := &authorizationv1.SubjectAccessReview{
		TypeMeta: kind("authorization.k8s.io/v1", "SubjectAccessReview"),
		Spec:     authorizationv1.SubjectAccessReviewSpec{User: "u"},
	}
	const shop = "/api/v1/namespaces/shop/"
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	patch := []byte(`{"status":{"phase":"Running"}}`)
	ours := metav1.ListOptions{FieldSelector: "spec.nodeName=n1", TimeoutSeconds: new(int64(30))}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions("uid")}
	nowJSON := []byte(`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"uid"}}`)
	done := &metav1.Status{TypeMeta: kind("v1", "Status"), Status: "Success"}
	ctx, r := t.Context(), &recorder{status: http.StatusOK}
	c := serve(t, r, "application/json", Limits{QPS: 50, Burst: 100, EventQPS: 50, EventBurst: 100})
	type object = runtime.Object
	get := func(o object, namespace, name string) func() (object, error) {
		into := reflect.New(reflect.TypeOf(o).Elem()).Interface().(object)
		return func() (object, error) { return into, c.Get(ctx, namespace, name, into) }
	}
	by := func(call func(context.Context, object) error, o object) func() (object, error) {
		o = o.DeepCopyObject()
		return func() (object, error) { return o, call(ctx, o) }
	}
	for _, tt := range []struct {
		want   string
		sent   any // the body's content, or nil
		answer object
		call   func() (object, error)
	}{
		{"POST " + shop + "pods", p, p, by(c.Create, p)},
		{"PATCH " + shop + "pods/web/status", patch, p, func() (object, error) {
			into := &v1.Pod{}
			return into, c.PatchStatus(ctx, "shop", "web", patch, into)
		}},
		{"DELETE " + shop + "pods/web", nowJSON, done, func() (object, error) {
			return done, c.DeletePod(ctx, "shop", "web", now)
		}},
		{
			"GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1&timeout=30s&timeoutSeconds=30", nil, pods,
			func() (object, error) { return c.ListPods(ctx, ours) },
		},
		{"PATCH /api/v1/nodes/n1/status", []byte("{}"), node, func() (object, error) {
			return c.NodeByPatch(ctx, "n1")
		}},
		{"PATCH /api/v1/nodes/n1/status?fieldManager=m&force=true", patch, node, func() (object, error) {
			return node, c.ApplyNodeStatus(ctx, "n1", "m", patch)
		}},
		{"POST " + shop + "events", event, event, func() (object, error) { return event, c.CreateEvent(ctx, event) }},
		{"PUT " + leases + "/n1", lease, lease, by(c.Update, lease)},
		{"GET " + shop + "configmaps/settings", nil, settings, get(settings, "shop", "settings")},
		{"GET " + shop + "secrets/key", nil, key, get(key, "shop", "key")},
		{"GET " + shop + "serviceaccounts/clerk", nil, clerk, get(clerk, "shop", "clerk")},
		{"POST " + shop + "serviceaccounts/clerk/token", token, token, func() (object, error) {
			return c.CreateToken(ctx, "shop", "clerk", token)
		}},
		{"POST /apis/authentication.k8s.io/v1/tokenreviews", review, review, by(c.Create, review)},
		{"POST /apis/authorization.k8s.io/v1/subjectaccessreviews", access, access, by(c.Create, access)},
		{"POST " + shop + "events", event, event, func() (object, error) { return c.Events().Create(event) }},
		{"PUT " + shop + "events/web.1", event, event, func() (object, error) { return c.Events().Update(event) }},
	} {
		r.answer, r.asked = tt.answer, nil
		got, err := tt.call()
		testkit.Must(t, err)
		testkit.Equal(t, "asked", []string{tt.want, "Bearer secret"}, append(r.asked, r.identity))
		// Decoding drops the kind.
		got.GetObjectKind().SetGroupVersionKind(tt.answer.GetObjectKind().GroupVersionKind())
		testkit.Equal(t, tt.want, tt.answer, got)
		want, ok := tt.sent.([]byte)
		if !ok && tt.sent != nil {
			want, _ = json.Marshal(tt.sent)
		}
		testkit.Equal(t, tt.want, string(want), strings.TrimSpace(string(r.body)))
		patched := r.kind == string(types.StrategicMergePatchType)
		if strings.Contains(tt.want, "fieldManager") {
			patched = r.kind == string(types.ApplyPatchType)
		}
		testkit.Equal(t, tt.want+", as a patch", strings.HasPrefix(tt.want, "PATCH"), patched)
	}
}

// TestHeartbeatsAreNotHeldBack uses up what the limit allows, and still reports the node.
func TestHeartbeatsAreNotHeldBack(t *testing.T) {
	r := &recorder{status: http.StatusOK, answer: &v1.Pod{TypeMeta: kind("v1", "Pod")}}
	c := serve(t, r, "application/json", Limits{QPS: 1e-6, Burst: 1, EventQPS: 1e-6, EventBurst: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	err := c.Get(ctx, "shop", "web", &v1.Pod{})
	for range 5 {
		r.answer = &v1.Node{TypeMeta: kind("v1", "Node")}
		nodeErr := c.Get(ctx, "", "n1", &v1.Node{})
		r.answer = &coordinationv1.Lease{TypeMeta: kind("coordination.k8s.io/v1", "Lease")}
		leaseErr := c.Get(ctx, v1.NamespaceNodeLease, "n1", &coordinationv1.Lease{})
		err = errors.Join(err, nodeErr, leaseErr)
	}
	testkit.Must(t, err)
	cancel()
	if err := c.Get(ctx, "shop", "web", &v1.Pod{}); err == nil {
		t.Error("a second pod was not held back")
	}
	testkit.Equal(t, "requests", 11, len(r.asked))
}
