package kubelet

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// A node is a kubelet's HTTP for a test: the health port, the server with credentials, and the read-only port.
type node struct {
	ping, server, readOnly *httptest.Server
	answers                map[string]http.HandlerFunc // of server and readOnly
	allow                  func(*http.Request) int     // the status for who asks at server
}

func say(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func newNode(t *testing.T, i issuer) *node {
	t.Helper()
	n := &node{
		allow: func(*http.Request) int { return 200 },
		answers: map[string]http.HandlerFunc{
			"/healthz": say(200, "ok"), "/healthz/syncloop": say(200, "ok"), "/metrics": say(200, kubeletMetrics),
			"/configz": say(200, `{"kubeletconfig":{"maxPods":110}}`),
		},
	}
	serve := func(allow bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status := n.allow(r); allow && status != 200 {
				w.WriteHeader(status)
				fmt.Fprint(w, "Forbidden (user=system:node:worker-1, verb=get, resource=nodes, subresource=proxy)")
				return
			}
			if h := n.answers[r.URL.Path]; h != nil {
				h(w, r)
				return
			}
			http.NotFound(w, r)
		})
	}
	n.ping = httptest.NewServer(say(200, "ok"))
	n.readOnly = httptest.NewServer(serve(false))
	n.server = httptest.NewUnstartedServer(serve(true))
	n.server.TLS = i.serving(time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)) // expired: it is not verified
	n.server.Config.ErrorLog = quiet()
	n.server.StartTLS()
	for _, s := range []*httptest.Server{n.ping, n.readOnly, n.server} {
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
	}
	return n
}

func (n *node) settings() Settings {
	s := plain()
	s.PID = os.Getpid()
	s.HealthzAddress, s.Address = n.ping.Listener.Addr().String(), n.server.Listener.Addr().String()
	return s
}

func ok(url string) *Answer { return &Answer{URL: url, Status: 200} }

func denied(url string, status int) *Answer { return &Answer{URL: url, Status: status, Denied: true} }

// TestAskHealth leaves Took and the metrics, which have a test of their own, but for their being there.
func TestAskHealth(t *testing.T) {
	authority := newIssuer(t)
	certificate, key := authority.node()
	for _, tc := range []struct {
		name   string
		change func(n *node, h tree, s *Settings, c *Credentials)
		want   func(n *node) Health
	}{
		{
			"by token", func(n *node, _ tree, _ *Settings, c *Credentials) {
				c.Token = "secret"
				n.allow = func(r *http.Request) int {
					if r.Header.Get("Authorization") != "Bearer secret" {
						return 401
					}
					return 200
				}
			},
			func(n *node) Health {
				return Health{
					Ping: ok(n.ping.URL + "/healthz"), SyncLoop: ok(n.server.URL + "/healthz/syncloop"),
					Metrics: &Metrics{}, Credential: "token",
				}
			},
		},
		{
			"by the operator's certificate, and the sync loop stands", func(n *node, h tree, _ *Settings, c *Credentials) {
				h.file("me.pem", certificate+key)
				c.CertFile = h.root + "/me.pem"
				n.allow = knownByCertificate
				n.answers["/healthz/syncloop"] = say(500, "internal server error: sync Loop took longer than expected\n")
			},
			func(n *node) Health {
				return Health{
					Ping:     ok(n.ping.URL + "/healthz"),
					SyncLoop: &Answer{URL: n.server.URL + "/healthz/syncloop", Status: 500},
					Metrics:  &Metrics{}, Credential: "certificate",
				}
			},
		},
		{
			"the node's own certificate is known and not allowed", func(n *node, h tree, s *Settings, _ *Credentials) {
				h.file("pki/kubelet-client-current.pem", certificate+key)
				s.CertDir = "/pki"
				n.allow = func(r *http.Request) int {
					if knownByCertificate(r) == 200 {
						return 403
					}
					return 401
				}
			},
			func(n *node) Health {
				return Health{
					Ping: ok(n.ping.URL + "/healthz"), SyncLoop: denied(n.server.URL+"/healthz/syncloop", 403),
					Missing: "the kubelet's server does not let us in with the node certificate (403)",
				}
			},
		},
		{
			"the API server is away, and nobody can say who may come in", func(n *node, h tree, s *Settings, _ *Credentials) {
				h.file("pki/kubelet-client-current.pem", certificate+key)
				s.CertDir = "/pki"
				for path := range n.answers {
					n.answers[path] = say(500, "Authorization error (user=system:node:worker-1, verb=get, resource=nodes, subresource=healthz)")
				}
			},
			func(n *node) Health {
				unasked := func(path string) *Answer {
					return &Answer{
						URL: n.server.URL + path, Status: 500, Denied: true,
					}
				}
				return Health{
					Ping: ok(n.ping.URL + "/healthz"), SyncLoop: unasked("/healthz/syncloop"),
					Missing: "the kubelet could not ask the API server whether the node certificate lets us in (500)",
				}
			},
		},
		{
			"the node's newest certificate, not the expired one of its kubeconfig", func(n *node, h tree, s *Settings, _ *Credentials) {
				h.file("pki/kubelet-client-current.pem", certificate+key)
				h.file("kubelet.conf", kubeconfig("https://127.0.0.1:1", embedded(authority.expired())))
				s.Kubeconfig, s.CertDir, s.RotateClient = "/kubelet.conf", "/pki", true
				n.allow = knownByCertificate
			},
			func(n *node) Health {
				return Health{
					Ping: ok(n.ping.URL + "/healthz"), SyncLoop: ok(n.server.URL + "/healthz/syncloop"),
					Metrics: &Metrics{}, Credential: "node certificate",
				}
			},
		},
		{
			"without a credential", func(n *node, _ tree, _ *Settings, _ *Credentials) { n.allow = func(*http.Request) int { return 401 } },
			func(n *node) Health {
				return Health{
					Ping: ok(n.ping.URL + "/healthz"), SyncLoop: denied(n.server.URL+"/healthz/syncloop", 401),
					Missing: "the kubelet's server wants a token or a certificate, and none was given or found",
				}
			},
		},
		{
			"the read-only port where nothing else opens", func(n *node, _ tree, s *Settings, _ *Credentials) {
				n.allow = func(*http.Request) int { return 401 }
				s.ReadOnlyAddress = n.readOnly.Listener.Addr().String()
			},
			func(n *node) Health {
				return Health{
					Ping: ok(n.ping.URL + "/healthz"), SyncLoop: ok(n.readOnly.URL + "/healthz/syncloop"),
					Metrics: &Metrics{}, Credential: "read-only port",
					Missing: "the kubelet's server wants a token or a certificate, and none was given or found",
				}
			},
		},
		{
			"redirects are not followed, and what is too large or broken is said", func(n *node, _ tree, _ *Settings, c *Credentials) {
				c.Token = "x"
				n.answers["/healthz/syncloop"] = func(w http.ResponseWriter, r *http.Request) {
					http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
				}
				n.answers["/metrics"] = say(200, "<html>")
				n.answers["/configz"] = nil
			},
			func(n *node) Health {
				return Health{
					Ping:       ok(n.ping.URL + "/healthz"),
					SyncLoop:   &Answer{URL: n.server.URL + "/healthz/syncloop", Status: 302},
					Unread:     []string{"/metrics: reading the kubelet's metrics: none is a kubelet's", "/configz: 404 Not Found"},
					Credential: "token",
				}
			},
		},
		{
			"it runs with other settings than it says", func(n *node, _ tree, _ *Settings, c *Credentials) {
				c.Token = "x"
				n.answers["/configz"] = say(200, `{"kubeletconfig":{"maxPods":50,"runtimeRequestTimeout":"2m0s","cgroupDriver":"systemd"}}`)
			},
			func(n *node) Health {
				return Health{
					Ping: ok(n.ping.URL + "/healthz"), SyncLoop: ok(n.server.URL + "/healthz/syncloop"),
					Metrics: &Metrics{}, Credential: "token",
					Differs: []Difference{{"maxPods", "50", "110"}},
				}
			},
		},
		{
			"the operator's certificate and key are no pair", func(_ *node, h tree, _ *Settings, c *Credentials) {
				_, other := authority.node()
				h.file("c", certificate)
				h.file("k", other)
				c.CertFile, c.KeyFile = h.root+"/c", h.root+"/k"
			},
			func(n *node) Health {
				return Health{Ping: ok(n.ping.URL + "/healthz"), Missing: "the client certificate and its key are no pair"}
			},
		},
		{
			"another's address", func(_ *node, _ tree, s *Settings, _ *Credentials) {
				s.HealthzAddress, s.Address = "192.0.2.1:10248", "192.0.2.1:10250"
			},
			func(*node) Health {
				return Health{
					Ping:    &Answer{URL: "http://192.0.2.1:10248/healthz", Err: "192.0.2.1:10248 is no address of this node"},
					Missing: "192.0.2.1:10250 is no address of this node",
				}
			},
		},
		{
			"all turned off", func(_ *node, _ tree, s *Settings, _ *Credentials) { s.HealthzAddress, s.Address = "", "" },
			func(*node) Health { return Health{Missing: "the kubelet's server is turned off (enableServer)"} },
		},
		{
			"nothing listens", func(n *node, _ tree, _ *Settings, _ *Credentials) {
				n.ping.Close()
				n.server.Close()
			},
			func(n *node) Health {
				none := func(url string) *Answer { return &Answer{URL: url, Err: "connection refused: nothing listens there"} }
				return Health{
					Ping: none(n.ping.URL + "/healthz"), SyncLoop: none(n.server.URL + "/healthz/syncloop"),
					Missing: "the kubelet's server: connection refused: nothing listens there",
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, h := newNode(t, authority), newTree(t)
			s := n.settings()
			var given Credentials
			tc.change(n, h, &s, &given)
			got, err := AskHealth(t.Context(), h.root, s, given)
			if err != nil {
				t.Fatal(err)
			}
			if got.Metrics != nil {
				got.Metrics = &Metrics{}
			}
			if diff := cmp.Diff(tc.want(n), got, cmpopts.IgnoreFields(Answer{}, "Took")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func knownByCertificate(r *http.Request) int {
	if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != "system:node:worker-1" {
		return http.StatusUnauthorized
	}
	return http.StatusOK
}

func TestAskHealthHangs(t *testing.T) {
	n := newNode(t, newIssuer(t))
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	n.answers["/healthz/syncloop"] = func(http.ResponseWriter, *http.Request) { <-done }
	s := n.settings()
	s.HealthzAddress = ""
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if got, err := AskHealth(soon, t.TempDir(), s, Credentials{Token: "x"}); err != nil || got.SyncLoop.Hung || got.SyncLoop.Err != "no answer in time" {
		t.Errorf("cut short by the end of the command: %+v, error %v", got.SyncLoop, err)
	}
	// The end of the command comes before the kubelet's time for an answer is up, and leaves a busy machine time to ask.
	ctx, cancel := context.WithTimeout(t.Context(), leastHang+(answerTimeout-leastHang)*9/10)
	defer cancel()
	got, err := AskHealth(ctx, t.TempDir(), s, Credentials{Token: "x"})
	if err != nil || !got.SyncLoop.Hung || got.SyncLoop.Status != 0 || got.SyncLoop.Err != "no answer in time" {
		t.Errorf("got %+v, error %v", got.SyncLoop, err)
	}
	if got.Metrics == nil || got.Credential != "token" {
		t.Errorf("one that hangs holds up the others: %+v", got)
	}
}

func TestAskHealthAsksNoMoreOfOneThatHangs(t *testing.T) {
	n := newNode(t, newIssuer(t))
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	hang := func(_ http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			t.Errorf("%s asked on the read-only port", r.URL.Path)
		}
		<-done
	}
	for path := range n.answers {
		n.answers[path] = hang
	}
	s := n.settings()
	s.HealthzAddress, s.ReadOnlyAddress = "", n.readOnly.Listener.Addr().String()
	s.Address = n.server.Listener.Addr().String()
	d, err := newServerClient(t.TempDir(), s, Credentials{Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	d.timeout = 200 * time.Millisecond
	if got := d.askEither(t.Context(), s); got.Credential != "" || got.Missing != "the kubelet's server: no answer in time" {
		t.Errorf("got %+v", got)
	}
}

func TestAskHealthFromElsewhere(t *testing.T) {
	h := newTree(t)
	h.link("net:[4026532000]", "proc/812/ns/net")
	if _, err := AskHealth(t.Context(), h.root, plain(), Credentials{}); err == nil || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("error %v", err)
	}
	h.file("kubelet.conf", kubeconfig("https://127.0.0.1:1", "token: x"))
	h.file("ca.crt", newIssuer(t).pem)
	if _, err := AskServer(t.Context(), h.root, Settings{PID: 812, Kubeconfig: "/kubelet.conf"}); err == nil || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("the API server at an address that is another one here: error %v", err)
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	h.link(ours, "proc/"+strconv.Itoa(813)+"/ns/net")
	if apart(h.root, 813, "net") {
		t.Error("our own namespace is none of another's")
	}
}

func TestBodyIsBounded(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for chunk := []byte(strings.Repeat("# HELP gigantic\n", 4096)); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endless.Close)
	d := serverClient{client: newClient(nil), base: endless.URL, timeout: time.Minute}
	err := d.read(t.Context(), "/metrics", func(body io.Reader) error {
		_, err := parseMetrics(body)
		return err
	})
	if tlsError, other := whyNoAnswer(err); tlsError != "" || other != "the answer has more than 33554432 bytes" {
		t.Errorf("error %v", err)
	}
}

func TestOnNode(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", "127.0.0.1:1": "127.0.0.1:1", "localhost:1": "127.0.0.1:1", "[::1]:1": "[::1]:1",
		"192.0.2.1:1": "", "example.org:1": "", "x": "", ":1": "",
	} {
		if got, err := onNode(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, error %v", address, got, err)
		}
	}
}

// broken is a transport with a fault of its own.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) { panic("boom") }

// TestAskAllPanics wants a panic in a goroutine to be an error.
func TestAskAllPanics(t *testing.T) {
	c := serverClient{client: &http.Client{Transport: broken{}}, timeout: time.Second}
	if h := c.askAll(t.Context(), nil); !strings.Contains(h.SyncLoop.Err, "boom") || len(h.Unread) != 1 {
		t.Errorf("%+v", h)
	}
}
