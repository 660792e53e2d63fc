package apptest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Cluster starts an API server that answers requests, such as "GET /api/v1/nodes/n1", and returns its kubeconfig. All
// others are answered as Kubernetes does for what does not exist.
func Cluster(t *testing.T, answers map[string]http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := answers[r.Method+" "+r.URL.Path]; answer != nil {
			answer(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","code":404,"reason":"NotFound","message":"no %s"}`,
			r.URL.Path)
	}))
	t.Cleanup(server.Close)
	return Kubeconfig(t, server.URL)
}

// JSON answers with a document.
func JSON(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
}
