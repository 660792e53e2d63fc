package fleet

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
)

// agentServer returns a server of the nodes n1 and n2, and of pods of agents, whatever is asked for.
func agentServer(pods ...v1.Pod) *server {
	const node = `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n2"}, "status": {"addresses":
		[{"type": "Hostname", "address": "n2"}, {"type": "InternalIP", "address": "10.0.0.2"}]}}`
	return &server{
		lists: map[string]runtime.Object{podsPath: &v1.PodList{Items: pods}},
		docs:  map[string]string{nodesPath + "/n1": node, nodesPath + "/n2": node},
	}
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
		forbid     string
		want       string // path behind the proxy, or the problem
	}{
		{"the newest", "n1", []v1.Pod{agentPod("a", 9, nil), agentPod("b", 1, nil), agentPod("c", 5, nil)}, "", "b:9478"},
		{
			"that runs, at its port", "n1",
			[]v1.Pod{agentPod("a", 9, moved), agentPod("b", 1, pending), agentPod("c", 2, ending)},
			"", "a:9999",
		},
		{"none runs", "n1", []v1.Pod{agentPod("b", 1, pending)}, "", "no agent of kdiag runs on n1"},
		{"nodes are secret", "n3", nil, "nodes/n3", "no agent of kdiag runs on n3"},
		{
			"pods are secret", "n1", nil, "pods",
			`looking for the agent's pod: pods is forbidden: User "eve" cannot list it`,
		},
		{"no path", "../n1", nil, "", "reading the node ../n1: invalid resource name \"../n1\": [may not contain '/']"},
	} {
		api := agentServer(tt.pods...)
		api.fail(forbids(tt.forbid))
		agent, err := connect(t, api).Agent(t.Context(), tt.node)
		asked := podsPath + "?" + url.Values{
			"labelSelector": {"app.kubernetes.io/name=kdiag"}, "fieldSelector": {"spec.nodeName=" + tt.node},
			"limit": {"100"},
		}.Encode()
		equal(t, tt.name, asked, api.requests()[0])
		got := testkit.Text(err)
		if err != nil {
			if e, ok := errors.AsType[*NodeError](err); !ok || e.Hint == "" ||
				e.NoAgent != strings.HasPrefix(tt.want, "no agent") {
				t.Errorf("%s: %#v", tt.name, err)
			}
		} else {
			got = strings.TrimSuffix(strings.TrimPrefix(agent.proxy, "/api/v1/namespaces/kdiag/pods/"), "/proxy/")
		}
		equal(t, tt.name, tt.want, got)
	}
}

// TestAgentRead has the answers of the proxy.
func TestAgentRead(t *testing.T) {
	const agent, proxy = "the agent on n1 (kdiag/a)", "/api/v1/namespaces/kdiag/pods/a:9478/proxy/report?since=2h"
	for _, tt := range []struct {
		name  string
		proxy http.HandlerFunc
		want  string // the problem, and a word of the hint
		hint  string
	}{
		{"another page", answers(404, "404 page not found"), agent + " answers: 404 page not found", "older version"},
		{
			"another kind", answers(200, `{"kind":"History"}`),
			"the answer of " + agent + ` is not a Report of kdiag: it is a "History"`, "get pod -n kdiag a",
		},
		{
			"not for me", refuses(apierrors.NewForbidden(v1.Resource("pods/proxy"), "", errors.New("no"))),
			"reaching " + agent + ": pods/proxy is forbidden: no", "get pods/proxy in kdiag",
		},
		{
			"slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			agent + " does not answer: no answer in time", "describe node n1",
		},
		{
			"sent elsewhere", http.RedirectHandler("http://stranger", http.StatusFound).ServeHTTP,
			agent + ` does not answer: Get "http://stranger": redirected elsewhere`, "describe",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := agentServer(agentPod("a", 1, nil))
			api.proxy = tt.proxy
			found, err := connect(t, api).Agent(t.Context(), "n1")
			must(t, err)
			ctx := testkit.Within(t, time.Second)
			var r checks.Report
			err = found.Read(ctx, "report", url.Values{"since": {"2h"}}, checks.KindReport, &r)
			e, ok := errors.AsType[*NodeError](err)
			if !ok || e.Problem != tt.want || !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("%s: %#v", tt.name, err)
			}
			if all := api.requests(); all[len(all)-1] != proxy { // a stranger would be the last
				t.Errorf("%s: asked %s", tt.name, all)
			}
		})
	}
}

func TestCopyIsBounded(t *testing.T) {
	api := agentServer(agentPod("a", 1, nil))
	api.proxy = answers(200, "12345678")
	agent, err := connect(t, api).Agent(t.Context(), "n1")
	must(t, err)
	for most, want := range map[int64]string{8: "", 7: "the answer of the agent on n1 (kdiag/a) has more than 7 B"} {
		var got bytes.Buffer
		err := agent.Copy(t.Context(), "captures/x", nil, &got, most)
		if equal(t, "the problem", want, testkit.Text(err)); got.Len() > 8 {
			t.Errorf("%d bytes of at most %d", got.Len(), most)
		}
	}
}
