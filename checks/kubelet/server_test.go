package kubelet

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// apiserver serves like one: its certificate is for that time, it knows nodes by their certificate or their token, and its
// clock is off by skew.
func apiserver(t *testing.T, i issuer, from, to time.Time, skew time.Duration) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
		switch r.URL.Path {
		case "/readyz":
			fmt.Fprint(w, "ok")
		case "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1":
			if knownByCertificate(r) != http.StatusOK {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, `{"kind":"Lease","spec":{"leaseDurationSeconds":40,"renewTime":%q}}`,
				time.Now().Add(-time.Minute).UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
		default:
			t.Errorf("asked for %s", r.URL.Path)
		}
	}))
	server.TLS = i.serving(from, to)
	server.Config.ErrorLog = quiet()
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestAskServer(t *testing.T) {
	authority, other := newIssuer(t), newIssuer(t)
	hour := time.Hour
	good := apiserver(t, authority, time.Now().Add(-hour), time.Now().Add(hour), -10*time.Minute)
	expired := apiserver(t, authority, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC), 0)
	foreign := apiserver(t, other, time.Now().Add(-hour), time.Now().Add(hour), 0)
	refused := "https://" + refusing(t)
	certificate, key := authority.node()
	byCertificate := "client-certificate: n.pem\n    client-key: n.pem"
	for _, tc := range []struct {
		name, url, user string
		want            Server
	}{
		{"by certificate", good.URL, byCertificate, Server{
			Reachable: true, Status: 200, Skew: -10 * time.Minute, SkewKnown: true, LeaseRead: true, LeaseAge: time.Minute,
		}},
		{"by a program", good.URL, "exec: {command: aws}", Server{
			Reachable: true, Status: 200, Skew: -10 * time.Minute, SkewKnown: true,
			LeaseErr: "the kubelet gets its credential from a program, which kdiag does not run",
		}},
		{"by a certificate that is not there", good.URL, "client-certificate: none.pem\n    client-key: n.pem", Server{
			Reachable: true, Status: 200, Skew: -10 * time.Minute, SkewKnown: true, LeaseErr: "/none.pem does not exist",
		}},
		{"expired", expired.URL, byCertificate, Server{
			TLSError: "is after 2021-01-01T00:00:00Z",
		}},
		{"of another authority", foreign.URL, byCertificate, Server{
			TLSError: "certificate signed by unknown authority",
		}},
		{"of another name", strings.Replace(good.URL, "127.0.0.1", "localhost", 1), byCertificate, Server{
			TLSError: "to match localhost",
		}},
		{"refused", refused, byCertificate, Server{Err: "connection refused: nothing listens there"}},
		{"no such name", "https://kdiag.invalid:1", byCertificate, Server{Err: "DNS"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			h.file("kubelet.conf", kubeconfig(tc.url, tc.user))
			h.file("ca.crt", authority.pem)
			h.file("n.pem", certificate+key)
			got, err := AskServer(t.Context(), h.root, Settings{Kubeconfig: "/kubelet.conf", NodeName: "worker-1"})
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.Err == "DNS" {
				// What a resolver says of a name that cannot be differs with the network.
				if got.Err == "" || got.Reachable || !strings.Contains(got.Err, "kdiag.invalid") {
					t.Errorf("got %+v", got)
				}
				return
			}
			if tc.want.TLSError != "" && strings.Contains(got.TLSError, tc.want.TLSError) {
				tc.want.TLSError = got.TLSError
			}
			tc.want.URL = tc.url
			ignore := []cmp.Option{cmpopts.IgnoreFields(Server{}, "Took"), near(5 * time.Second)}
			if diff := cmp.Diff(tc.want, got, ignore...); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// near makes durations equal that differ by less than a slow machine.
func near(d time.Duration) cmp.Option {
	return cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= d })
}

// refusing is an address at which nothing listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestAskServerAsTheKubeletDoes has an old pair in the kubeconfig, and the newest where the kubelet keeps it.
func TestAskServerAsTheKubeletDoes(t *testing.T) {
	authority := newIssuer(t)
	server := apiserver(t, authority, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), 0)
	certificate, key := authority.node()
	outdated, outdatedKey := authority.expired()
	for _, tc := range []struct {
		name        string
		kubeconfig  string
		newest      string
		rotates, ok bool
	}{
		{"the kubeconfig's is over", embedded(outdated, outdatedKey), certificate + key, true, true},
		{"the kubeconfig's is over, and the kubelet does not rotate", embedded(outdated, outdatedKey), certificate + key, false, false},
		{"the newest is over", embedded(certificate, key), outdated + outdatedKey, true, true},
		{"there is no newest", embedded(certificate, key), "", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			h.file("kubelet.conf", kubeconfig(server.URL, tc.kubeconfig))
			h.file("ca.crt", authority.pem)
			if tc.newest != "" {
				h.file("pki/kubelet-client-current.pem", tc.newest)
			}
			got, err := AskServer(t.Context(), h.root, Settings{PID: 1 << 30, Kubeconfig: "/kubelet.conf", NodeName: "worker-1", CertDir: "/pki", RotateClient: tc.rotates})
			if err != nil || got.LeaseRead != tc.ok {
				t.Errorf("%+v, error %v", got, err)
			}
		})
	}
}

func TestAskServerCannot(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no file", "", "asking the API server: /kubelet.conf does not exist"},
		{"no kubeconfig", "[", "asking the API server: /kubelet.conf is no kubeconfig"},
		{"no URL", kubeconfig("nowhere", "token: x"), "asking the API server: /kubelet.conf names a server that is no URL"},
		{"no authority", kubeconfig("https://127.0.0.1:1", "token: x"), "asking the API server: /ca.crt does not exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newTree(t)
			if tc.text != "" {
				h.file("kubelet.conf", tc.text)
			}
			_, err := AskServer(t.Context(), h.root, Settings{Kubeconfig: "/kubelet.conf"})
			if err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := AskServer(t.Context(), t.TempDir(), Settings{}); err == nil {
		t.Error("a standalone kubelet has no API server")
	}
}
