package kubelet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestAskGoroutines asks a kubelet and, where it refuses, an API server that both know the node by its certificate.
func TestAskGoroutines(t *testing.T) {
	const dump = "goroutine 1 [running]:\nmain.main()\n\t/main.go:1 +0x1\n"
	authority := newIssuer(t)
	certificate, key := authority.node()
	const proxy, right = "/api/v1/nodes/worker-1/proxy/debug", "; the right to get nodes/proxy is needed"
	const off = ": enableProfilingHandler or enableDebuggingHandlers is false"
	hang := func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // or the answer could still arrive
	}
	for _, tc := range []struct {
		name   string
		status int              // of the kubelet; 0 for a dump
		answer http.HandlerFunc // of the kubelet instead
		token  string
		api    int    // the status of the API server's proxy; 0 where it must not be asked
		from   string // part of the URL
		err    string // after "asking the kubelet for its goroutines: "
	}{
		{name: "by token", token: "secret", from: "https://127.0.0.1:"},
		{name: "by the API server", status: 403, api: 200, from: proxy},
		{
			name: "refused by both", status: 403, api: 403,
			err: "it refuses the node certificate (403), " +
				"and the API server's proxy does not help (403 Forbidden)" + right,
		},
		{name: "no profiling", answer: answer(404, ""), api: 200, err: "it gives none (404)" + off},
		{name: "no dump", answer: answer(200, "<html>"), api: 200, err: "the answer is not a goroutine dump"},
		{name: "hung", answer: hang, api: 200, err: "no answer in time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, authority)
			n.given.Token = tc.token
			n.answers["/debug/pprof/goroutine"] = answer(200, dump)
			if tc.answer != nil {
				n.answers["/debug/pprof/goroutine"] = tc.answer
			}
			if tc.status != 0 {
				n.status(tc.status)
			}
			api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RequestURI() != "/api/v1/nodes/worker-1/proxy"+goroutinesPath || knownByCertificate(r) != 200 {
					t.Errorf("the API server was asked for %s", r.URL)
				}
				w.WriteHeader(tc.api)
				fmt.Fprint(w, dump)
			}))
			api.TLS = authority.serving(time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
			api.StartTLS()
			defer api.Close()
			n.settings.NodeName, n.settings.Kubeconfig = "worker-1", "/kubelet.conf"
			n.Write("kubelet.conf", kubeconfig(api.URL, embedded(certificate, key)), "ca.crt", authority.pem)
			ctx, hung := t.Context(), tc.name == "hung"
			if hung {
				ctx = testkit.Within(t, 50*time.Millisecond)
			}
			g, err := AskGoroutines(ctx, n.Root, n.settings, n.given, tc.api != 0, 20)
			text := ""
			if err != nil {
				text = strings.TrimPrefix(err.Error(), "asking the kubelet for its goroutines: ")
			} else {
				equal(t, dump[:20], string(g.Text))
			}
			equal(t, tc.err, text)
			equal(t, hung, g.Hung)
			if !strings.Contains(g.URL, tc.from) {
				t.Errorf("from %s, want %s", g.URL, tc.from)
			}
		})
	}
}
