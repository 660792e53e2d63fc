package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kdiag/kdiag/checks"
)

// An api is an API server with a few objects: nodes n1 and n2, and pods.
type api struct {
	pods   []v1.Pod         // of agents, whatever is asked for
	refuse map[string]error // answers, by method and path without /api/v1; of pods also by one of both
	proxy  http.HandlerFunc // what is behind the proxy of any pod
	log    string           // of any pod
	play   func(*v1.Pod)    // changes a created pod at each look

	mu      sync.Mutex
	asked   []string
	created *v1.Pod
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1")
	a.mu.Lock()
	a.asked = append(a.asked, r.Method+" "+path)
	a.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	var answer any
	var err error
	for what, refusal := range a.refuse { // names of pods are random
		ofPods := strings.Contains(path, "/pods") && (what == r.Method || strings.HasSuffix(path, "/"+what))
		if ofPods || what == r.Method+" "+path {
			err = refusal
		}
	}
	switch {
	case err != nil:
	case strings.Contains(path, "/proxy/"):
		a.proxy(w, r)
		return
	case strings.HasSuffix(path, "/log"):
		_, _ = io.WriteString(w, a.log)
		return
	case path == "/pods":
		if q := r.URL.Query(); q.Get("labelSelector") != "app.kubernetes.io/name=kdiag" {
			err = errors.New("all pods are asked for")
		} else if node, ok := strings.CutPrefix(q.Get("fieldSelector"), "spec.nodeName="); !ok || node == "n1" {
			answer = v1.PodList{TypeMeta: kind("PodList"), Items: a.pods}
		} else {
			answer = v1.PodList{TypeMeta: kind("PodList")}
		}
	case path == "/nodes/n1" || path == "/nodes/n2":
		node := v1.Node{TypeMeta: kind("Node"), ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
		node.Status.Addresses = []v1.NodeAddress{
			{Type: v1.NodeHostName, Address: "n2"}, {Type: v1.NodeInternalIP, Address: "10.0.0.2"},
		}
		answer = node
	case r.Method == http.MethodPost:
		a.created = &v1.Pod{}
		_ = json.NewDecoder(r.Body).Decode(a.created)
		a.created.Status.Phase = v1.PodPending
		answer = a.created
	case a.created != nil && strings.HasSuffix(path, "/"+a.created.Name):
		if r.Method == http.MethodGet && a.play != nil {
			a.play(a.created)
		}
		answer = a.created
		if r.Method == http.MethodDelete {
			var how metav1.DeleteOptions
			_ = json.NewDecoder(r.Body).Decode(&how)
			if grace := how.GracePeriodSeconds; grace != nil && *grace == 0 { // else a dead kubelet would have to agree
				a.created = nil
			}
		}
	default:
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, path)
	}
	if err != nil {
		status, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok {
			status = apierrors.NewInternalError(err)
		}
		writeStatus(w, &status.ErrStatus)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func kind(name string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: name} }

func forbidden(what string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: what}, "", errors.New("no"))
}

// RoundTrip serves a request before it returns.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w.Result(), r.Context().Err()
}

// agentPod returns a pod of an agent that was made some minutes ago.
func agentPod(name string, minutes int, change func(*v1.Pod)) v1.Pod {
	made := time.Date(2026, 11, 23, 12, -minutes, 0, 0, time.UTC)
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "kdiag", CreationTimestamp: metav1.NewTime(made),
	}}
	p.Status.Phase = v1.PodRunning
	p.Spec.Containers = []v1.Container{{Name: "kdiag", Image: "registry/kdiag:1"}}
	if change != nil {
		change(&p)
	}
	return p
}

func TestAgent(t *testing.T) {
	pending := func(p *v1.Pod) { p.Status.Phase = v1.PodPending }
	ending := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	moved := func(p *v1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 80}, {Name: "metrics", ContainerPort: 9999}},
		})
	}
	for _, tt := range []struct {
		name, node string
		pods       []v1.Pod
		refuse     map[string]error
		want       string // path behind the proxy, or the problem
	}{
		{"the newest", "n1", []v1.Pod{agentPod("a", 9, nil), agentPod("b", 1, nil), agentPod("c", 5, nil)}, nil, "b:9478"},
		{
			"that runs", "n1",
			[]v1.Pod{agentPod("a", 9, nil), agentPod("b", 1, pending), agentPod("c", 2, ending)},
			nil, "a:9478",
		},
		{"its port", "n1", []v1.Pod{agentPod("a", 9, moved)}, nil, "a:9999"},
		{"none runs", "n1", []v1.Pod{agentPod("b", 1, pending)}, nil, "no agent of kdiag runs on n1"},
		{"elsewhere", "n2", []v1.Pod{agentPod("a", 9, nil)}, nil, "no agent of kdiag runs on n2"},
		{"no node", "n3", nil, nil, "there is no node n3 in this cluster"},
		{
			"nodes are secret", "n3", nil,
			map[string]error{"GET /nodes/n3": forbidden("nodes")},
			"no agent of kdiag runs on n3",
		},
		{
			"pods are secret", "n1", nil,
			map[string]error{"GET /pods": forbidden("pods")},
			"looking for the agent's pod: pods is forbidden: no",
		},
		{"no path", "../n1", nil, nil, "reading the node ../n1: invalid resource name \"../n1\": [may not contain '/']"},
	} {
		c := connect(t, &api{pods: tt.pods, refuse: tt.refuse})
		agent, err := c.Agent(t.Context(), tt.node)
		got := ""
		if err != nil {
			got = err.Error()
			if e, ok := errors.AsType[*NodeError](err); !ok || e.Hint == "" ||
				e.NoAgent != strings.HasPrefix(tt.want, "no agent") {
				t.Errorf("%s: %#v", tt.name, err)
			}
		} else {
			got = strings.TrimSuffix(strings.TrimPrefix(agent.proxy, "/api/v1/namespaces/kdiag/pods/"), "/proxy/")
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestAgentRead has the answers of the proxy.
func TestAgentRead(t *testing.T) {
	text := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, code) }
	}
	const agent, proxy = "the agent on n1 (kdiag/a)", "/namespaces/kdiag/pods/a:9478/proxy/report"
	down := apierrors.NewServiceUnavailable("error trying to reach service: dial tcp 10.0.0.1:9478: i/o timeout")
	for _, tt := range []struct {
		name   string
		proxy  http.HandlerFunc
		refuse error
		want   string // the problem, and a word of the hint
		hint   string
	}{
		{"a report", text(200, `{"kind":"Report","host":"h"}`), nil, "", ""},
		{"no look yet", text(503, "no look has ended yet"), nil, agent + " answers: no look has ended yet", ""},
		{"another page", text(404, "404 page not found"), nil, agent + " answers: 404 page not found", "older version"},
		{
			"another kind", text(200, `{"kind":"History"}`), nil,
			"the answer of " + agent + ` is not a Report of kdiag: it is a "History"`, "get pod -n kdiag a",
		},
		{
			"no document", text(200, "<html>"), nil,
			"the answer of " + agent + " is not a Report of kdiag: invalid character '<' looking for beginning of value",
			"get pod",
		},
		{"down", nil, down, agent + " does not answer: " + down.Error(), "describe node n1"},
		{
			"not for me", nil, forbidden("pods/proxy"),
			"reaching " + agent + ": pods/proxy is forbidden: no", "get pods/proxy in kdiag",
		},
		{
			"slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil,
			agent + " does not answer: no answer in time", "describe node n1",
		},
		{
			"sent elsewhere", http.RedirectHandler("http://stranger", http.StatusFound).ServeHTTP, nil,
			agent + ` does not answer: Get "http://stranger": redirected elsewhere`, "describe",
		},
	} {
		a := &api{pods: []v1.Pod{agentPod("a", 1, nil)}, proxy: tt.proxy}
		if tt.refuse != nil {
			a.refuse = map[string]error{"GET " + proxy: tt.refuse}
		}
		synctest.Test(t, func(t *testing.T) {
			found, err := connect(t, a).Agent(t.Context(), "n1")
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var r checks.Report
			err = found.Read(ctx, "report", url.Values{"since": {"2h"}}, checks.KindReport, &r)
			if e, ok := errors.AsType[*NodeError](err); tt.want != "" {
				if !ok || e.Problem != tt.want || !strings.Contains(e.Hint, tt.hint) {
					t.Errorf("%s: %#v", tt.name, err)
				}
			} else if err != nil || r.Host != "h" {
				t.Errorf("%s: %+v, %v", tt.name, r, err)
			}
			if last := a.asked[len(a.asked)-1]; last != "GET "+proxy { // a stranger would be the last
				t.Errorf("%s: asked %s", tt.name, last)
			}
		})
	}
}

func TestCopyIsBounded(t *testing.T) {
	a := &api{pods: []v1.Pod{agentPod("a", 1, nil)}, proxy: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "12345678")
	}}
	agent, err := connect(t, a).Agent(t.Context(), "n1")
	must(t, err)
	for most, want := range map[int64]string{8: "", 7: "the answer of the agent on n1 (kdiag/a) has more than 7 B"} {
		var got bytes.Buffer
		problem := ""
		if err := agent.Copy(t.Context(), "captures/x", nil, &got, most); err != nil {
			problem = err.Error()
		}
		if diff := cmp.Diff(want, problem); diff != "" || got.Len() > 8 {
			t.Error(diff)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := agent.Copy(ended, "x", nil, io.Discard, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
