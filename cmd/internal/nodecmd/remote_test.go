package nodecmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/kdiag/kdiag/cmd/internal/apptest"
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
	answers := map[string]http.HandlerFunc{
		"GET /api/v1/pods": apptest.JSON(`{"kind":"PodList","apiVersion":"v1"}`),
		"GET /api/v1/nodes/n1": apptest.JSON(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"},
"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.7"}]}}`),
	}
	answers["POST "+pods] = func(w http.ResponseWriter, r *http.Request) {
		var pod struct{ Metadata struct{ Name string } }
		_ = json.NewDecoder(r.Body).Decode(&pod)
		path, object := pods+"/"+pod.Metadata.Name, apptest.JSON(fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":
{"name":%q,"namespace":"kube-system"},"status":%s,"spec":{"nodeName":"n1","containers":[{"image":"x"}]}}`,
			pod.Metadata.Name, l.status))
		mu.Lock()
		defer mu.Unlock()
		answers["GET "+path], answers["GET "+path+"/log"] = object, apptest.JSON(l.log)
		answers["DELETE "+path] = func(w http.ResponseWriter, r *http.Request) {
			l.removed = true
			object(w, r)
		}
		object(w, r)
		close(l.made)
	}
	return apptest.Cluster(t, answers)
}

// TestOtherNode looks at a node in a pod, with the report of a real node as its log.
func TestOtherNode(t *testing.T) {
	log := apptest.Kdiag(t.Context(), "node", "--simulate", "inspect-hang", "--rpc-timeout", "300ms", "-o", "json").Stdout
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
		o := apptest.Kdiag(t.Context(), args...)
		if o.Code != tt.code || !strings.Contains(o.Stdout, tt.stdout) || !strings.Contains(o.Stderr, tt.stderr) ||
			!l.removed {
			t.Errorf("%s: removed %v, %+v", tt.name, l.removed, o)
		}
	}
	l := &life{status: pending, made: make(chan struct{})}
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-l.made
		interrupt()
	}()
	if o := apptest.Kdiag(ctx, "node", "n1", "--image", "x", "--kubeconfig", l.cluster(t)); o.Code != 2 || !l.removed ||
		o.Stderr != "kdiag: interrupted\n" {
		t.Errorf("interrupted: removed %v, %+v", l.removed, o)
	}
	for line, want := range map[string]string{
		"n1": "no agent runs in this cluster, so no image of kdiag is known", "n2": "there is no node n2",
		"n1 --deep": "NODE excludes --deep", "n1 --from x": "NODE excludes --from", "n1 -w": "NODE excludes --watch",
		"n1 --simulate healthy": "NODE excludes --simulate", "--image x": "--image is for another node",
		"--context x": "--context is for another node", "n1 --image=": "--image is empty",
		"n1 -t 9s --start-timeout 10s": "--start-timeout 10s is not between 1s and --timeout 9s",
	} {
		args := append([]string{"node"}, strings.Fields(line)...)
		if strings.HasPrefix(line, "n") {
			args = append(args, "--kubeconfig", (&life{}).cluster(t))
		}
		if o := apptest.Kdiag(t.Context(), args...); o.Code != 2 || !strings.HasPrefix(o.Stderr, "kdiag: "+want) {
			t.Errorf("%s: %+v", line, o)
		}
	}
}
