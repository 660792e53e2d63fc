package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
)

const (
	nodesPath  = "/api/v1/nodes"
	pleg       = "PLEG is not healthy: pleg was last seen active 3m5.9s ago; threshold is 3m0s"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
)

// nodesOf serves nodes, and more answers, which may replace those.
func nodesOf(t *testing.T, nodes map[string]string, more map[string]any) string {
	t.Helper()
	answers := map[string]any{
		nodesPath: nodeList(nodes), leasesPath: listOf("coordination.k8s.io/v1", "Lease"),
		"/apis/coordination.k8s.io/v1/leases": listOf("coordination.k8s.io/v1", "Lease"),
		"/api/v1/events":                      listOf("v1", "Event"),
		"/api/v1/pods":                        listOf("v1", "Pod"),
		"/version":                            map[string]any{"major": "1", "minor": "37", "gitVersion": "v1.37.2"},
	}
	maps.Copy(answers, more)
	return cluster(t, answers)
}

// TestFleetFormats has each format of a cluster with two causes.
func TestFleetFormats(t *testing.T) {
	config := nodesOf(t, map[string]string{
		"a": "", "b": pleg, "c": pleg, "d": "? Kubelet stopped posting node status.\x1b[31m", "e": "",
	}, nil)
	for _, tt := range []struct {
		flags string
		want  []string // parts of the output, in order
	}{
		{"-o name", []string{"node/b\nnode/c\nnode/d\n"}},
		{"-o wide --no-headers", []string{
			"b  NotReady  1h  ", "v1.36.2  containerd://2.1.4", "\nc ", "\nd ", "\na ", "\ne ",
		}},
		{"", []string{
			"UNHEALTHY  prod-eu  3 of 5", "\nPLEGUnhealthy  2 nodes: ",
			"\n       scp $(command -v kdiag) b:/tmp/ && ssh b sudo /tmp/kdiag node\n",
			"\n       kubectl describe node b --kubeconfig " + config + "\n", "\n       kdiag explain PLEGUnhealthy\n",
			"\nNodeStatusUnknown  1 node: ", "\n  NODE  READY ", "\n  d     Unknown",
			"\nMore: kdiag fleet --kubeconfig " + config + " --details",
		}},
		{"--context prod-eu --details", []string{"\n       kubectl describe node b --context prod-eu --kubeconfig "}},
	} {
		out := kdiag(t.Context(), append([]string{"fleet", "--kubeconfig", config}, strings.Fields(tt.flags)...)...)
		if out.code != 1 || out.stderr != "" || strings.Contains(out.stdout, "\x1b") {
			t.Errorf("%s: exit code %d, %q\n%q", tt.flags, out.code, out.stderr, out.stdout)
		}
		rest := out.stdout
		for _, part := range tt.want {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("%s: %q is not where it should be in\n%s", tt.flags, part, out.stdout)
			}
			rest = after
		}
	}
}

// TestFleetOutcomes has the exit codes and messages of clusters that are well, or cannot be read.
func TestFleetOutcomes(t *testing.T) {
	well := map[string]string{"a": "", "b": ""}
	for _, tt := range []struct {
		name   string
		config string
		flags  string
		code   int
		stdout string // what it begins with
		stderr string // a part
	}{
		{"well", nodesOf(t, well, nil), "", 0, "HEALTHY  prod-eu  2 nodes, all ready\n", ""},
		{"no nodes", nodesOf(t, nil, nil), "", 2, "UNKNOWN  prod-eu  the API server has no such nodes\n", ""},
		{
			"leases forbidden", nodesOf(t, well, map[string]any{
				leasesPath: http.StatusForbidden, "/apis/coordination.k8s.io/v1/leases": http.StatusForbidden,
			}), "", 0, "HEALTHY  prod-eu  2 nodes, all ready\n\n  ? ", "",
		},
		{
			"forbidden", nodesOf(t, nil, map[string]any{nodesPath: http.StatusForbidden}),
			"", 2, "", "  hint: kdiag fleet needs to list nodes and leases; docs/fleet.md has the ClusterRole\n",
		},
		{
			"logs forbidden", nodesOf(t, well, map[string]any{
				nodesPath + "/a/proxy/logs/": http.StatusForbidden, nodesPath + "/b/proxy/logs/": http.StatusForbidden,
			}), "--logs", 2, "UNKNOWN  prod-eu  log of 2 nodes not read (a and b): forbidden: it takes the right to get", "",
		},
	} {
		out := kdiag(t.Context(), append([]string{"fleet", "--kubeconfig", tt.config}, strings.Fields(tt.flags)...)...)
		if out.code != tt.code || !strings.HasPrefix(out.stdout, tt.stdout) || tt.stdout == "" && out.stdout != "" ||
			!strings.Contains(out.stderr, tt.stderr) || (tt.stderr == "") != (out.stderr == "") {
			t.Errorf("%s: %+v", tt.name, out)
		}
	}
}

// TestFleetHangs has a server that accepts and does not answer.
func TestFleetHangs(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupted := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	})
	blocked := serving(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if o := kdiag(t.Context(), "fleet", "--kubeconfig", blocked, "--timeout", "300ms"); o.code != 2 ||
		!strings.Contains(o.stderr, "wait longer with --timeout") {
		t.Errorf("late: %+v", o)
	}
	if o := kdiag(ctx, "fleet", "--kubeconfig", interrupted); o.code != 2 || o.stdout != "" {
		t.Errorf("interrupted: %+v", o)
	}
}

// A stopper calls stop when something is written.
type stopper struct {
	strings.Builder
	stop func()
}

func (s *stopper) Write(b []byte) (int, error) {
	s.stop()
	return s.Builder.Write(b)
}

// TestFleetWatch ends a watch with the verdict of the last state.
func TestFleetWatch(t *testing.T) {
	for message, code := range map[string]int{"": 0, pleg: 1} {
		ctx, stop := context.WithCancel(t.Context())
		out := &stopper{stop: stop}
		env, _, stderr := surroundings()
		env.Out = out
		got := Main(ctx, env, []string{
			"fleet", "-w", "-o", "brief", "--kubeconfig", nodesOf(t, map[string]string{"a": message}, nil),
		})
		if got != code || strings.Count(out.String(), "\n") != 1 || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, want %d; %s%s", message, got, code, out, stderr)
		}
	}
}

const (
	older     = "20261123T140512Z-ListHang.tar.zst"
	newer     = "20261123T150512Z-RuntimeHung.tar.zst"
	agent     = "/api/v1/namespaces/kdiag/pods/a:9478/proxy/"
	captures  = "/api/v1/namespaces/kdiag/secrets/" + checks.CapturesSecret
	agentPods = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a","namespace":"kdiag"},
"status":{"phase":"Running"}}]}`
)

// cluster has a node whose agent has a report of some age, the history of package render, and two captures.
func agentCluster(t *testing.T, age time.Duration) (flags []string, answers map[string]any) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), newer)
	var report outcome
	inFakeTime(t, func(t *testing.T, kdiag func(args ...string) outcome) {
		report = kdiag("pleg", "--simulate", "inspect-hang", "-o", "json")
		if o := kdiag("bundle", "--simulate", "healthy", archive); o.code != 0 {
			t.Fatal(o)
		}
	})
	report.stdout = strings.ReplaceAll(report.stdout, `"simulated"`, `"flag"`)
	doc := *decode[map[string]any](t, report)
	doc["generatedAt"], doc["host"] = time.Now().Add(-age).UTC().Format(time.RFC3339), "n1.example"
	history, data := testkit.Read(t, "../render/testdata/history.json"), testkit.Read(t, archive)
	past := strings.ReplaceAll(history, "2026-11-23T", "2026-11-20T")
	list := fmt.Sprintf(`{"apiVersion":"kdiag/v1","kind":"CaptureList","command":"kdiag agent","host":"n1.example",
"generatedAt":"2026-11-23T15:10:00Z","kdiagVersion":"v1","status":"healthy","problems":[],"captures":[
{"name":%q,"at":"2026-11-23T15:05:12Z","cause":"RuntimeHung","bytes":%d},
{"name":%q,"at":"2026-11-23T14:05:12Z","cause":"ListHang","bytes":3}]}`, newer, len(data), older)
	answers = map[string]any{
		"/api/v1/pods": agentPods, agent + "report": doc,
		agent + "history": past, agent + "captures/": list,
		agent + "captures/" + older: "bad",
		agent + "captures/" + newer: func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(checks.CapturesToken) != "token" {
				http.Error(w, "archives take a token", http.StatusUnauthorized)
				return
			}
			_, _ = io.WriteString(w, data)
		},
		captures: `{"kind":"Secret","apiVersion":"v1","data":{"token":"dG9rZW4K"}}`,
	}
	return []string{"--kubeconfig", cluster(t, answers)}, answers
}

// TestFleetRemote runs each command, and looks for what it prints on standard output and standard error.
func TestFleetRemote(t *testing.T) {
	flags, answers := agentCluster(t, 10*time.Second)
	old, _ := agentCluster(t, 12*time.Minute)
	t.Chdir(t.TempDir())
	run := func(args string, flags []string, code int, stdout, absent, stderr string) {
		t.Helper()
		o := kdiag(t.Context(), append(strings.Split("fleet "+args, " "), flags...)...)
		if o.code != code || !strings.Contains(o.stdout, stdout) || !strings.Contains(o.stderr, stderr) ||
			absent != "" && strings.Contains(o.stdout, absent) || stderr == "" && o.stderr != "" {
			t.Errorf("%s: %+v", args, o)
		}
	}
	run("report n1", flags, 1, "UNHEALTHY  n1.example  InspectHang: ", "old: the agent", "")
	run("report n1", flags, 1, "\nMore: kdiag fleet report n1 --kubeconfig ", "runtime-endpoint", "")
	run("report n1", old, 1, "Note: this report is 12m", "", "")
	run("report n1 -o brief", old, 1, "UNHEALTHY InspectHang: ", "", "report is 12m")
	run("history n1 --since -24h", flags, 1, "RECOVERED  node-7  RuntimeHung from ", "", "")
	run("history n1", flags, 1, "--capture 20261123T140530Z-RuntimeHung.tar.zst", " --from ", "")
	run("bundle n1 --list", flags, 0, "2 archives  n1.example\n\nCAPTURED  ", "", "")
	run("bundle n1 --capture "+older, flags, 2, "", "", older+" arrived damaged: ")
	run("bundle n1 --capture ../"+newer, flags, 2, "", "", "has no such archive")
	run("report ", flags, 2, "", "", "an argument is empty") // and not one that is missing
	run("bundle n1", flags, 0, "WRITTEN  "+newer, "", "")
	run("bundle n1", flags, 2, "", "", newer+" is there already")
	run("bundle n1 -", flags, 0, "\x28\xb5\x2f\xfd", "WRITTEN", "WRITTEN")
	if o := kdiag(t.Context(), "node", "--from", newer, "-o", "brief"); !strings.HasPrefix(o.stdout, "HEALTHY ") {
		t.Errorf("the archive that was fetched: %+v", o)
	}
	// A name that is a path must not become one here.
	list := answers[agent+"captures/"]
	answers[agent+"captures/"] = `{"kind":"CaptureList","captures":[{"name":"../x","bytes":3}]}`
	run("bundle n1", flags, 2, "", "", "has no such archive")
	answers[agent+"captures/"] = list
	answers[agent+"captures/"+newer] = func(w http.ResponseWriter, _ *http.Request) { // ends early
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write([]byte("begun"))
	}
	run("bundle n1 new", flags, 2, "", "", "does not answer")
	left, err := os.ReadDir(".")
	must(t, err)
	if len(left) != 1 || left[0].Name() != newer {
		t.Errorf("left in the folder: %v", left)
	}
}

// otherNode serves a cluster whose node n1 has no agent. A pod there ends at once, with a log. It returns the
// kubeconfig.
func otherNode(t *testing.T, log string) string {
	t.Helper()
	const pods = "/api/v1/namespaces/kube-system/pods"
	answers := map[string]any{
		"/api/v1/pods": `{"kind":"PodList","apiVersion":"v1"}`,
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1",
"items":[{"metadata":{"name":"n1"}},{"metadata":{"name":"n2"}}]}`,
		"/api/v1/nodes/n1": `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}`,
	}
	answers["POST "+pods] = func(w http.ResponseWriter, r *http.Request) {
		var pod struct{ Metadata struct{ Name string } }
		_ = json.NewDecoder(r.Body).Decode(&pod)
		path, object := pods+"/"+pod.Metadata.Name, fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":
{"name":%q,"namespace":"kube-system"},"spec":{"nodeName":"n1","containers":[{"image":"x"}]},"status":
{"phase":"Succeeded","containerStatuses":[{"state":{"terminated":{"exitCode":1}}}]}}`, pod.Metadata.Name)
		answers[path], answers[path+"/log"], answers["DELETE "+path] = object, log, object
		_, _ = w.Write([]byte(object))
	}
	return cluster(t, answers)
}

// TestOtherNode looks at a node in a pod, with the report of a real node as its log. Package fleet has the pods that
// make no report.
func TestOtherNode(t *testing.T) {
	var log string
	inFakeTime(t, func(_ *testing.T, kdiag func(args ...string) outcome) {
		log = kdiag("node", "--simulate", "inspect-hang", "-o", "json").stdout
	})
	at := otherNode(t, log)
	o := kdiag(t.Context(), "node", "n1", "--image", "x", "--all", "--kubeconfig", at)
	if o.code != 1 || !strings.HasPrefix(o.stdout, "UNHEALTHY  SIMULATION  InspectHang: ") ||
		!strings.Contains(o.stdout, " ok        ") {
		t.Errorf("%+v", o)
	}
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
	for line, want := range map[string]string{
		"n1": "no image of kdiag is known: no DaemonSet kdiag runs", "n2": "there is no node n2",
		"n1 --deep": "NODE excludes --deep", "n1 -w": "NODE excludes --watch",
		"--image x": "--image is for another node", "--context x": "--context is for another node",
		"n1 --image=":                  "--image is empty",
		"n1 -t 9s --start-timeout 10s": "--start-timeout 10s is not between 1s and --timeout 9s",
	} {
		args := append([]string{"node"}, strings.Fields(line)...)
		if strings.HasPrefix(line, "n") {
			args = append(args, "--kubeconfig", at)
		}
		if o := kdiag(t.Context(), args...); o.code != 2 || !strings.HasPrefix(o.stderr, "kdiag: "+want) {
			t.Errorf("%s: %+v", line, o)
		}
	}
}

// cluster serves the answers of an API server by their paths, after the method where that is not GET, until the test
// ends. An answer is a handler, the code of an error, a document's text, or what is encoded as one. What has no answer
// does not exist. It returns a kubeconfig whose context is named prod-eu.
func cluster(t *testing.T, answers map[string]any) (kubeconfig string) {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[strings.TrimPrefix(r.Method+" "+r.URL.Path, "GET ")]
		if handle, special := answer.(func(http.ResponseWriter, *http.Request)); special {
			handle(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			answer = http.StatusNotFound
		}
		if r.URL.Query().Get("watch") != "" && ok {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		switch a := answer.(type) {
		case int:
			w.WriteHeader(a)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`,
				a, strings.ReplaceAll(http.StatusText(a), " ", ""), "refused: "+http.StatusText(a))
		case string:
			_, _ = w.Write([]byte(a))
		default:
			_ = json.NewEncoder(w).Encode(a)
		}
	})
}

// serving returns a kubeconfig of a server with this handler.
func serving(t *testing.T, handle http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: prod-eu, context: {cluster: c, user: u}}]
current-context: prod-eu
`, server.URL), 0o600))
	return file
}

// nodeList is a list of nodes as JSON: of each the message of its Ready condition, empty for a node that is ready, by
// its name. A message that begins with a question mark is of a node that is silent.
func nodeList(messages map[string]string) any {
	var items []any
	for _, name := range slices.Sorted(maps.Keys(messages)) {
		message := messages[name]
		status, reason := "False", "KubeletNotReady"
		if message == "" {
			status, reason, message = "True", "KubeletReady", "kubelet is posting ready status"
		} else if strings.HasPrefix(message, "?") {
			status, reason = "Unknown", "NodeStatusUnknown"
		}
		items = append(items, map[string]any{
			"metadata": map[string]any{"name": name, "uid": name, "creationTimestamp": "2026-01-02T03:04:05Z"},
			"status": map[string]any{
				"conditions": []any{map[string]any{
					"type": "Ready", "status": status, "reason": reason, "message": message,
					"lastTransitionTime": time.Now().UTC().Add(-time.Hour).Format(time.RFC3339),
				}},
				"nodeInfo": map[string]any{"kubeletVersion": "v1.36.2", "containerRuntimeVersion": "containerd://2.1.4"},
			},
		})
	}
	return listOf("v1", "Node", items...)
}

func listOf(version, kind string, items ...any) any {
	return map[string]any{
		"kind": kind + "List", "apiVersion": version, "metadata": map[string]any{"resourceVersion": "7"},
		"items": append([]any{}, items...),
	}
}
