package apptest

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

// Kube serves documents as an API server would, by their paths; those of other paths are not found. An answer that
// is a number is the code of an error. It returns a kubeconfig whose context is named prod-eu.
func Kube(t *testing.T, answers map[string]any) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		if !ok {
			answer = http.StatusNotFound
		}
		if r.URL.Query().Get("watch") != "" && ok {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		if code, failed := answer.(int); failed {
			w.WriteHeader(code)
			answer = map[string]any{
				"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
				"reason":  strings.ReplaceAll(http.StatusText(code), " ", ""),
				"message": "refused: " + http.StatusText(code),
			}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return Kubeconfig(t, server.URL)
}

// Kubeconfig writes a kubeconfig for a server.
func Kubeconfig(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	Must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: prod-eu, context: {cluster: c, user: u}}]
current-context: prod-eu
`, server), 0o600))
	return file
}

// NodeList is a list of nodes as JSON: of each the message of its Ready condition, empty for a node that is ready, by
// its name. A message that begins with a question mark is of a node that is silent.
func NodeList(messages map[string]string) any {
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
	return map[string]any{
		"kind": "NodeList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "7"}, "items": items,
	}
}

// EmptyList is a list of a kind, such as v1 Pod, that is empty.
func EmptyList(version, kind string) any {
	return map[string]any{
		"kind": kind + "List", "apiVersion": version, "metadata": map[string]any{"resourceVersion": "7"},
		"items": []any{},
	}
}

// Hanging returns a kubeconfig for a server that answers nothing until the test ends.
func Hanging(t *testing.T) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	return Kubeconfig(t, server.URL)
}
