package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

const (
	pods      = "/api/v1/namespaces/kube-system/pods"
	succeeded = `{"phase":"Succeeded","containerStatuses":[{"state":{"terminated":{"exitCode":1}}}]}`
	noImage   = `{"phase":"Pending","containerStatuses":[{"state":{"waiting":{"reason":"ImagePullBackOff"}}}]}`
	pending   = `{"phase":"Pending"}`
)

// A life is that of one pod on the node n1, which has no agent.
type life struct {
	status, log string
	made        chan struct{}
	removed     bool
}

// cluster returns the kubeconfig of the node's cluster.
func (l *life) cluster(t *testing.T) string {
	t.Helper()
	var mu sync.Mutex
	answers := map[string]any{
		"/api/v1/pods": `{"kind":"PodList","apiVersion":"v1"}`,
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1",
"items":[{"metadata":{"name":"n1"}},{"metadata":{"name":"n2"}}]}`,
		"/api/v1/nodes/n1": `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"},
"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.7"}]}}`,
	}
	answers["POST "+pods] = func(w http.ResponseWriter, r *http.Request) {
		var pod struct{ Metadata struct{ Name string } }
		_ = json.NewDecoder(r.Body).Decode(&pod)
		path, object := pods+"/"+pod.Metadata.Name, fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":
{"name":%q,"namespace":"kube-system"},"status":%s,"spec":{"nodeName":"n1","containers":[{"image":"x"}]}}`,
			pod.Metadata.Name, l.status)
		mu.Lock()
		defer mu.Unlock()
		answers[path], answers[path+"/log"] = object, l.log
		answers["DELETE "+path] = func(w http.ResponseWriter, _ *http.Request) {
			l.removed = true
			_, _ = w.Write([]byte(object))
		}
		_, _ = w.Write([]byte(object))
		close(l.made)
	}
	return cluster(t, answers)
}

// TestOtherNode looks at a node in a pod, with the report of a real node as its log.
func TestOtherNode(t *testing.T) {
	t.Parallel() // it waits for the end of seconds
	var log string
	inFakeTime(t, func(_ *testing.T, kdiag func(args ...string) outcome) {
		log = kdiag("node", "--simulate", "inspect-hang", "-o", "json").stdout
	})
	const byHand = "scp $(command -v kdiag) 10.0.0.7:/tmp/ && ssh 10.0.0.7 sudo /tmp/kdiag node"
	for _, tt := range []struct {
		name, status   string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"a report", succeeded, nil, 1, "UNHEALTHY  SIMULATION  InspectHang: ", ""},
		{"and its checks", succeeded, []string{"--all"}, 1, " ok        ", ""},
		{"as JSON", succeeded, []string{"-o", "json"}, 1, `"kind": "Report"`, ""},
		{"no image", noImage, nil, 2, "", "kdiag: node n1 cannot start pods: ImagePullBackOff after "},
		{"too late", pending, []string{"--start-timeout", "1s"}, 2, "", byHand},
		{"no time", pending, []string{"--timeout", "2s"}, 2, "", byHand},
	} {
		l := &life{status: tt.status, log: log, made: make(chan struct{})}
		args := append([]string{"node", "n1", "--image", "x", "--kubeconfig", l.cluster(t)}, tt.args...)
		o := kdiag(t.Context(), args...)
		if o.code != tt.code || !strings.Contains(o.stdout, tt.stdout) || !strings.Contains(o.stderr, tt.stderr) ||
			!l.removed {
			t.Errorf("%s: removed %v, %+v", tt.name, l.removed, o)
		}
	}
	at := (&life{}).cluster(t)
	for line, want := range map[string]string{
		"node --kubeconfig " + at: "n1\nn2\n:4\n", "fleet report --kubeconfig " + at: "n1\nn2\n:4\n",
		"fleet bundle n1 --kubeconfig " + at: ":0\n", "node --kubeconfig /none": ":4\n",
		"fleet --kubeconfig " + at + " --context": "prod-eu\n:4\n",
	} {
		args := append(append([]string{"__complete"}, strings.Fields(line)...), "")
		if o := kdiag(t.Context(), args...); o.code != 0 || o.stdout != want {
			t.Errorf("completing %s: %+v", line, o)
		}
	}
	l := &life{status: pending, made: make(chan struct{})}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-l.made
		interrupt()
	}()
	if o := kdiag(ctx, "node", "n1", "--image", "x", "--kubeconfig", l.cluster(t)); o.code != 2 || !l.removed ||
		o.stderr != "kdiag: interrupted\n" {
		t.Errorf("interrupted: removed %v, %+v", l.removed, o)
	}
	for line, want := range map[string]string{
		"n1": "no image of kdiag is known: no DaemonSet kdiag runs", "n2": "there is no node n2",
		"n1 --deep": "NODE excludes --deep", "n1 --from x": "NODE excludes --from", "n1 -w": "NODE excludes --watch",
		"n1 --simulate healthy": "NODE excludes --simulate", "--image x": "--image is for another node",
		"--context x": "--context is for another node", "n1 --image=": "--image is empty",
		"n1 -t 9s --start-timeout 10s": "--start-timeout 10s is not between 1s and --timeout 9s",
	} {
		args := append([]string{"node"}, strings.Fields(line)...)
		if strings.HasPrefix(line, "n") {
			args = append(args, "--kubeconfig", (&life{}).cluster(t))
		}
		if o := kdiag(t.Context(), args...); o.code != 2 || !strings.HasPrefix(o.stderr, "kdiag: "+want) {
			t.Errorf("%s: %+v", line, o)
		}
	}
}
