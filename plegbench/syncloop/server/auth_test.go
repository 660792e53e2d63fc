package server

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"

	"github.com/kdiag/kdiag/internal/testkit"
)

// A judge is an API server that knows the token of scraper, who may read metrics and stats, and whose certificates'
// group masters may do all. It notes what it is asked.
type judge struct {
	mu    sync.Mutex
	asked []string
	down  bool
}

func (j *judge) note(what string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, what)
	if j.down {
		return errors.New("the API server is down")
	}
	return nil
}

func (j *judge) Create(_ context.Context, review runtime.Object) error {
	if r, ok := review.(*authenticationv1.TokenReview); ok {
		if r.Spec.Token == "good" {
			r.Status.Authenticated = true
			r.Status.User = authenticationv1.UserInfo{
				Username: "scraper", UID: "7", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
			}
		}
		return j.note("token " + r.Spec.Token)
	}
	r := review.(*authorizationv1.SubjectAccessReview)
	s, a := r.Spec, r.Spec.ResourceAttributes
	r.Status.Allowed = slices.Contains(s.Groups, "masters") ||
		s.User == "scraper" && (a.Subresource == "metrics" || a.Subresource == "stats" || a.Subresource == "pods")
	return j.note(fmt.Sprintf("%s%s%v%v %s %s/%s/%s/%s", s.User, s.UID, s.Groups, s.Extra, a.Verb, a.Version,
		a.Resource, a.Name, a.Subresource))
}

// An authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	made, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "ca"}, key)
	testkit.Must(t, err)
	return authority{made, key}
}

// client makes a certificate for a user of a group.
func (a authority) client(t *testing.T, user, group string, usage x509.ExtKeyUsage) *tls.Certificate {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: user, Organization: []string{group}},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, a.key.Public(), a.key)
	testkit.Must(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func TestAuth(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	serving, err := Certificate("", "", filepath.Join(dir, "pki"), "node-1")
	testkit.Must(t, err)
	admin := ca.client(t, "admin", "masters", x509.ExtKeyUsageClientAuth)
	stranger := newAuthority(t).client(t, "admin", "masters", x509.ExtKeyUsageClientAuth)
	const asAdmin = "admin[masters system:authenticated]map[] "
	const asScraper = "scraper7[g system:authenticated]map[k:[v]] "
	for name, tt := range map[string]struct {
		auth   Auth
		down   bool
		token  string
		cert   *tls.Certificate
		method string
		path   string
		want   string // the code and text
		asked  []string
	}{
		"nobody": {path: "/metrics", want: "401 Unauthorized"},
		"anonymous": {
			auth: Auth{Anonymous: true}, path: "/metrics/resource",
			want: "403 Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[metrics])",
			asked: []string{
				"system:anonymous[system:unauthenticated]map[] get v1/nodes/node-1/metrics",
			},
		},
		"token": {
			auth: Auth{Tokens: true}, token: "good", path: "/healthz",
			want:  "403 Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[healthz proxy])",
			asked: []string{"token good", asScraper + "get v1/nodes/node-1/healthz", asScraper + "get v1/nodes/node-1/proxy"},
		},
		"stats": {
			auth: Auth{Tokens: true}, token: "good", path: "/stats/summary", want: `200 {"node"`,
			asked: []string{"token good", asScraper + "get v1/nodes/node-1/stats"},
		},
		"a name like metrics": {
			auth: Auth{Tokens: true}, token: "good", path: "/metricsx", method: http.MethodPost,
			want:  "403 Forbidden (user=scraper, verb=create, resource=nodes, subresource(s)=[proxy])",
			asked: []string{"token good", asScraper + "create v1/nodes/node-1/proxy"},
		},
		"bad token where anonymous may": {
			auth: Auth{Tokens: true, Anonymous: true, AlwaysAllow: true}, token: "bad", path: "/metrics",
			want: "401 Unauthorized", asked: []string{"token bad"},
		},
		"no tokens": {token: "good", path: "/metrics", want: "401 Unauthorized"},
		"token without API server": {
			auth: Auth{Tokens: true}, down: true, token: "good", path: "/metrics", want: "401 Unauthorized",
			asked: []string{"token good"},
		},
		"certificate without API server": {
			down: true, cert: admin, path: "/metrics",
			want:  "500 Authorization error (user=admin, verb=get, resource=nodes, subresource=metrics)",
			asked: []string{asAdmin + "get v1/nodes/node-1/metrics"},
		},
		"certificate": {
			cert: admin, path: "/healthz", want: "200 ok", asked: []string{asAdmin + "get v1/nodes/node-1/healthz"},
		},
		"a server's certificate": {
			auth: Auth{AlwaysAllow: true}, cert: ca.client(t, "admin", "masters", x509.ExtKeyUsageServerAuth),
			path: "/healthz", want: "401 Unauthorized",
		},
		"a stranger's certificate": {
			auth: Auth{AlwaysAllow: true, Anonymous: true}, cert: stranger, path: "/healthz", want: "401 Unauthorized",
		},
		"a certificate of nobody": {
			auth: Auth{AlwaysAllow: true}, cert: ca.client(t, "", "masters", x509.ExtKeyUsageClientAuth),
			path: "/healthz", want: "401 Unauthorized",
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, cfg := &judge{down: tt.down}, full()
			tt.auth.Certificate, tt.auth.ClientCAs, tt.auth.Reviews, tt.auth.NodeName = serving, ca.pool(), j, "node-1"
			cfg.Auth = &tt.auth
			tt.auth.TokenTTL, tt.auth.AllowTTL, tt.auth.DenyTTL = time.Hour, time.Hour, time.Hour
			url := "https://" + start(t, cfg) + tt.path
			own := x509.NewCertPool()
			own.AddCert(serving.Leaf)
			client := tls.Config{RootCAs: own, ServerName: "node-1"}
			if tt.cert != nil {
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tt.cert, nil }
			}
			transport := &http.Transport{TLSClientConfig: &client}
			defer transport.CloseIdleConnections()
			for range 2 { // the second time, from what is kept
				client := &http.Client{Transport: transport}
				code, text := do(t, client, cmp.Or(tt.method, http.MethodGet), url, func(r *http.Request) {
					if tt.token != "" {
						r.Header.Set("Authorization", "Bearer "+tt.token)
					}
				})
				if got := fmt.Sprint(code, " ", text); !strings.HasPrefix(got, tt.want) {
					t.Errorf("got  %.200s\nwant %s", got, tt.want)
				}
				if tt.down {
					break
				}
			}
			testkit.Equal(t, "reviews", tt.asked, j.asked)
		})
	}
}

func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	made, err := Certificate("", "", filepath.Join(dir, "pki"), "node-1")
	testkit.Must(t, err)
	again, err := Certificate("", "", filepath.Join(dir, "pki"), "node-2")
	testkit.Must(t, err)
	crt, key := filepath.Join(dir, "pki/kubelet.crt"), filepath.Join(dir, "pki/kubelet.key")
	given, err := Certificate(crt, key, "", "")
	testkit.Must(t, err)
	for name, c := range map[string]tls.Certificate{"again": again, "given": given} {
		if !c.Leaf.Equal(made.Leaf) || c.Leaf.VerifyHostname("node-1") != nil {
			t.Errorf("%s: another certificate", name)
		}
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
}
