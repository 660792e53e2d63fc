package app_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

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
	return writeKubeconfig(t, server.URL)
}

func writeKubeconfig(t *testing.T, server string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: prod-eu, context: {cluster: c, user: u}}]
current-context: prod-eu
`, server), 0o600))
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
