package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/internal/testkit"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// A node is a kubelet's HTTP for a test: the health port, the server with credentials, and the read-only port.
type node struct {
	testkit.Tree
	ping, server, readOnly *httptest.Server
	answers                map[string]http.HandlerFunc // of server and readOnly
	allow                  func(*http.Request) int     // the status for a request at server
	settings               Settings
	given                  Credentials
	requests               atomic.Int32  // at server
	connections            *atomic.Int32 // to server
}

// counted counts the connections that a server accepts. It is called before the start.
func counted(s *httptest.Server) *atomic.Int32 {
	var count atomic.Int32
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			count.Add(1)
		}
	}
	return &count
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func newNode(t *testing.T, i issuer) *node {
	t.Helper()
	n := &node{
		Tree: testkit.NewTree(t), allow: func(*http.Request) int { return 200 }, settings: plain(),
		answers: map[string]http.HandlerFunc{
			"/healthz": answer(200, "ok"), "/healthz/syncloop": answer(200, "ok"),
			"/metrics": answer(200, kubeletMetrics), "/configz": answer(200, `{"kubeletconfig":{"maxPods":110}}`),
		},
	}
	serve := func(allow bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if allow {
				n.requests.Add(1)
			}
			if status := n.allow(r); allow && status != 200 {
				answer(status, "Forbidden (user=system:node:worker-1, verb=get, resource=nodes)")(w, r)
			} else if h := n.answers[r.URL.Path]; h != nil {
				h(w, r)
			} else {
				http.NotFound(w, r)
			}
		})
	}
	n.ping = httptest.NewServer(answer(200, "ok"))
	n.readOnly = httptest.NewServer(serve(false))
	n.server = httptest.NewUnstartedServer(serve(true))
	n.server.TLS = i.serving(time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)) // expired: it is not verified
	n.server.Config.ErrorLog = quiet()
	n.connections = counted(n.server)
	n.server.StartTLS()
	for _, s := range []*httptest.Server{n.ping, n.readOnly, n.server} {
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
	}
	n.settings.PID = os.Getpid()
	n.settings.HealthzAddress, n.settings.Address = n.ping.Listener.Addr().String(), n.server.Listener.Addr().String()
	return n
}

func (n *node) status(status int) { n.allow = func(*http.Request) int { return status } }

func knownByCertificate(r *http.Request) int {
	if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != "system:node:worker-1" {
		return http.StatusUnauthorized
	}
	return http.StatusOK
}

// TestAskHealth compares all but Took. A kubelet that refuses a credential that nobody gave for this has one request
// and one connection to log.
func TestAskHealth(t *testing.T) {
	authority := newIssuer(t)
	certificate, key := authority.node()
	needs := "the kubelet's server needs a token or a certificate, and none was given or found"
	inCertDir := func(n *node) {
		n.Write("pki/kubelet-client-current.pem", certificate+key)
		n.settings.CertDir = "/pki"
	}
	for _, tc := range []struct {
		name       string
		change     func(n *node)
		credential string
		missing    string
		want       func(n *node, h *Health) // the differences from a kubelet that is well
	}{
		{"by token", func(n *node) {
			n.given.Token = "secret"
			n.allow = func(r *http.Request) int {
				if r.Header.Get("Authorization") != "Bearer secret" {
					return 401
				}
				return 200
			}
		}, "token", "", nil},
		{"by the operator's certificate, and the sync loop stands", func(n *node) {
			n.Write("me.pem", certificate+key)
			n.given.CertFile = n.Root + "/me.pem"
			n.allow = knownByCertificate
			n.answers["/healthz/syncloop"] = answer(500, "internal server error: sync Loop took longer than expected\n")
		}, "certificate", "", func(_ *node, h *Health) { h.SyncLoop.Status = 500 }},
		{"the node's own certificate is known and not allowed", func(n *node) {
			inCertDir(n)
			n.allow = func(r *http.Request) int { return map[int]int{200: 403, 401: 401}[knownByCertificate(r)] }
		}, "", "the kubelet's server refuses the node certificate (403)", func(_ *node, h *Health) {
			h.SyncLoop.Status, h.SyncLoop.Denied = 403, true
		}},
		{
			"the API server is away, and cannot be asked what is allowed", func(n *node) {
				inCertDir(n)
				for path := range n.answers {
					n.answers[path] = answer(500,
						"Authorization error (user=system:node:worker-1, verb=get, resource=nodes)")
				}
			}, "", "the kubelet could not ask the API server whether to accept the node certificate (500)",
			func(_ *node, h *Health) { h.SyncLoop.Status, h.SyncLoop.Denied = 500, true },
		},
		{"the node's newest certificate, not the expired one of its kubeconfig", func(n *node) {
			inCertDir(n)
			expired := time.Now().Add(-time.Hour)
			n.Write("kubelet.conf", kubeconfig("https://127.0.0.1:1",
				embedded(authority.pair("system:node:worker-1", expired.Add(-time.Hour), expired))))
			n.settings.Kubeconfig, n.settings.RotateClient = "/kubelet.conf", true
			n.allow = knownByCertificate
		}, "node certificate", "", nil},
		{"the read-only port where nothing else opens", func(n *node) {
			n.status(401)
			n.settings.ReadOnlyAddress = n.readOnly.Listener.Addr().String()
		}, "read-only port", needs, func(n *node, h *Health) { h.SyncLoop.URL = n.readOnly.URL + "/healthz/syncloop" }},
		{
			"all turned off", func(n *node) { n.settings.HealthzAddress, n.settings.Address = "", "" },
			"", "the kubelet's server is turned off (enableServer)", func(_ *node, h *Health) {
				h.Ping, h.SyncLoop = nil, nil
			},
		},
		{"redirects are not followed, and what is broken is unread", func(n *node) {
			n.given.Token = "x"
			n.answers["/healthz/syncloop"] = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
			}
			n.answers["/metrics"], n.answers["/configz"] = answer(200, "<html>"), nil
		}, "token", "", func(_ *node, h *Health) {
			h.SyncLoop.Status, h.Metrics = 302, nil
			h.Unread = []string{
				"/metrics: reading the kubelet's metrics: none is a kubelet's",
				"/configz: 404 Not Found",
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, authority)
			tc.change(n)
			got, err := AskHealth(t.Context(), n.Root, n.settings, n.given)
			must(t, err)
			want := Health{
				Credential: tc.credential, Missing: tc.missing,
				Ping:     &Answer{URL: n.ping.URL + "/healthz", Status: 200},
				SyncLoop: &Answer{URL: n.server.URL + "/healthz/syncloop", Status: 200},
			}
			if tc.credential != "" {
				seen := time.Date(2026, 11, 20, 12, 0, 0, 5e8, time.UTC)
				want.Metrics = &Metrics{PLEGLastSeen: seen, Relists: 400, RelistSeconds: 812.5}
			}
			if tc.want != nil {
				tc.want(n, &want)
			}
			equal(t, want, got, cmpopts.IgnoreFields(Answer{}, "Took"))
			if tc.want != nil && got.SyncLoop != nil && n.given == (Credentials{}) {
				equal(t, []int32{1, 1}, []int32{n.requests.Load(), n.connections.Load()})
			}
		})
	}
}

// A transport answers requests without a network, so also in fake time.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// client asks by a transport, with a credential that a person gave.
func (f transport) client() serverClient {
	return serverClient{
		client: &http.Client{Transport: f}, base: "https://node", given: true, timeout: answerTimeout, most: maxBody,
	}
}

func TestAskHealthHangs(t *testing.T) {
	n := newNode(t, newIssuer(t))
	n.settings.ReadOnlyAddress = n.readOnly.Listener.Addr().String()
	n.answers["/healthz/syncloop"] = func(http.ResponseWriter, *http.Request) {
		t.Error("where the server hangs, the read-only port is asked")
	}
	loop := func(r *http.Request) bool { return r.URL.Path == "/healthz/syncloop" }
	all := func(*http.Request) bool { return true }
	for _, tc := range []struct {
		name          string
		given         bool
		lasts         time.Duration // of the command
		hangs         func(*http.Request) bool
		hung, metrics bool
	}{
		{"cut short by the end of the command", true, leastHang - 1, loop, false, true},
		{"the loop alone, with the node's certificate", false, time.Minute, loop, true, true},
		{"everything", true, time.Minute, all, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := transport(func(r *http.Request) (*http.Response, error) {
				if tc.hangs(r) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				w := httptest.NewRecorder()
				n.answers["/metrics"](w, r)
				return w.Result(), nil
			}).client()
			c.given = tc.given
			ctx := testkit.Within(t, tc.lasts)
			s := n.settings
			if !tc.hung {
				s.ReadOnlyAddress = ""
			}
			began := time.Now()
			got := c.askEither(ctx, s)
			if got.SyncLoop.Hung != tc.hung || got.SyncLoop.Err != "no answer in time" ||
				(got.Metrics != nil) != tc.metrics || time.Since(began) != min(tc.lasts, answerTimeout) {
				t.Errorf("%s: %+v, %+v after %v", tc.name, got.SyncLoop, got, time.Since(began))
			}
			if missing := "the kubelet's server: no answer in time"; tc.metrics == (got.Missing == missing) {
				t.Errorf("%s: missing %q", tc.name, got.Missing)
			}
		})
	}
}

func TestBodyIsBounded(t *testing.T) {
	c := transport(func(*http.Request) (*http.Response, error) {
		body := io.NopCloser(bytes.NewReader(make([]byte, maxBody+1)))
		return &http.Response{StatusCode: 200, Body: body}, nil
	}).client()
	r, err := c.get(t.Context(), "/metrics")
	must(t, err)
	equal(t, maxBody, len(r.body))
}

func TestOnNode(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", "localhost:1": "127.0.0.1:1", "192.0.2.1:1": "",
		"example.org:1": "", "x": "", ":1": "",
	} {
		got, err := onNode(address)
		equal(t, want, got)
		equal(t, want == "", err != nil)
	}
}

// TestAskPing asks for a kubelet that is not among the processes, at the port in its unit.
func TestAskPing(t *testing.T) {
	h := testkit.NewTree(t)
	if got, err := AskPing(t.Context(), h.Root); !errors.Is(err, ErrNoNode) {
		t.Fatalf("on a host without a kubelet's files: %+v, %v", got, err)
	}
	server := httptest.NewServer(answer(200, ""))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(t, err)
	h.Write("var/lib/kubelet/config.yaml", "healthzPort: 1\n",
		"etc/systemd/system/kubelet.service", "[Service]\nExecStart=kubelet --healthz-port="+port+"\n")
	got, err := AskPing(t.Context(), h.Root)
	must(t, err)
	want := Health{Ping: &Answer{URL: server.URL + "/healthz", Status: 200}, Missing: "no kubelet runs here"}
	equal(t, want, got, cmpopts.IgnoreFields(Answer{}, "Took"))
}
