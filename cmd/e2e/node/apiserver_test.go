//go:build e2e

package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
)

// A controlPlane answers like an API server that has one node, and is in one of several states at a time.
type controlPlane struct {
	*httptest.Server
	state atomic.Value
}

// The states of a controlPlane.
const (
	well         = ""
	nodeDeleted  = "the node object is deleted"
	webhookFails = "a webhook refuses each write"
	nodeUnknown  = "the node is Unknown"
	diskPressure = "the node has DiskPressure"
)

const (
	authority   = "etc/kubernetes/pki/ca.crt"
	kubeconfig  = "etc/kubernetes/kubelet.conf"
	certificate = "var/lib/kubelet/pki/kubelet-client-current.pem"
)

// checkWithAPIServer breaks what is between the kubelet and its API server.
func (n node) checkWithAPIServer(t *testing.T) {
	c := &controlPlane{}
	c.state.Store(well)
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(c.answer))
	c.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	c.StartTLS()
	t.Cleanup(c.Close)
	gone := httptest.NewTLSServer(nil)
	gone.Close() // nobody listens there now
	n.place().CheckFile(t, "unjoined.yaml", map[string]e2etest.Maker{
		"the API server refuses connections":    n.joins(gone, time.Hour),
		"the kubelet's certificate has expired": n.expired(c),
	}, "${GONE}", gone.URL)
	n.joins(c.Server, time.Hour)(t, nil)
	n.AwaitKubelet(t)
	in := func(state string) e2etest.Maker {
		return func(t *testing.T, _ *place) { c.set(t, state) }
	}
	n.place().CheckFile(t, "joined.yaml", map[string]e2etest.Maker{
		"nothing, with an API server":            e2etest.Nothing,
		"DiskPressure after the shortage":        in(diskPressure),
		"the node is Unknown":                    in(nodeUnknown),
		"an API server of another authority":     n.changes(authority, pair(t, time.Hour)),
		"the API server's name does not resolve": n.changes(kubeconfig, settings("https://kdiag.invalid:443")),
		"the node object is deleted": func(t *testing.T, _ *place) {
			c.set(t, nodeDeleted)
			n.Await(t, "test $(ps -o etimes= -p $("+kubeletPID+")) -ge 21") // one that is younger is about to make it
		},
		"a webhook refuses the lease": func(t *testing.T, _ *place) {
			c.set(t, webhookFails)
			n.awaitOutage(t, "failed calling webhook")
		},
		"an API server that has just recovered": func(t *testing.T, _ *place) {
			c.set(t, webhookFails)
			n.awaitOutage(t, "failed calling webhook")
			c.state.Store(well)
		},
	})
}

// awaitOutage waits until such failures are in the kubelet's log over the 40 seconds for which the control plane waits.
func (n node) awaitOutage(t *testing.T, failure string) {
	t.Helper()
	since := n.Sh(t, "date +%s")
	n.Await(t, "journalctl -u kubelet -o short-unix --since @"+since+" | grep '"+failure+
		"' | awk 'NR == 1 { first = $1 } { last = $1 } END { exit last - first < 41 }'")
}

// joins gives the kubelet an API server to report to, that server's certificate, and its own, which ends in so long.
func (n node) joins(server *httptest.Server, ends time.Duration) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		n.Write(t, authority, block("CERTIFICATE", server.Certificate().Raw))
		n.Write(t, certificate, pair(t, ends))
		n.Write(t, kubeconfig, settings(server.URL))
		n.Write(t, "etc/default/kubelet", "KUBELET_ARGS=--kubeconfig /"+kubeconfig+"\n")
		t.Cleanup(func() {
			n.forget(t, "rm /etc/default/kubelet /"+kubeconfig+" /"+certificate+"; systemctl start kubelet")
		})
		n.Sh(t, "systemctl restart kubelet")
		n.Await(t, "grep -x kubelet /proc/$("+kubeletPID+")/comm") // systemd forks first
	}
}

// expired has the API server refuse the kubelet's certificate for as long as it takes to be an outage.
func (n node) expired(c *controlPlane) e2etest.Maker {
	return func(t *testing.T, at *place) {
		n.joins(c.Server, -time.Hour)(t, nil)
		n.awaitOutage(t, "Unauthorized")
		at.Also = func(t *testing.T, r *checks.Report) { // the log began with another server
			if last := r.Causes[len(r.Causes)-1]; !strings.Contains(last.NextSteps[0].Command, c.URL) {
				t.Errorf("%s asks %q, want %s", last.Code, last.NextSteps[0].Command, c.URL)
			}
		}
	}
}

// changes writes another content into a file.
func (n node) changes(name, content string) e2etest.Maker {
	return func(t *testing.T, _ *place) {
		n.rewrite(t, name, func(string) string { return content })
	}
}

// settings returns the kubelet's kubeconfig.
func settings(server string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "%s", certificate-authority: /%s}}]
users: [{name: u, user: {client-certificate: /%s, client-key: /%[3]s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server, authority, certificate)
}

// set changes the state until the test ends.
func (c *controlPlane) set(t *testing.T, state string) {
	c.state.Store(state)
	t.Cleanup(func() { c.state.Store(well) })
}

func (c *controlPlane) answer(w http.ResponseWriter, r *http.Request) {
	state := c.state.Load()
	w.Header().Set("Content-Type", "application/json")
	refuse := func(status int, reason, message string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`,
			status, reason, message)
	}
	node, lease := strings.HasSuffix(r.URL.Path, "/nodes/node"), strings.HasSuffix(r.URL.Path, "/leases/node")
	switch shown := r.TLS.PeerCertificates; {
	case len(shown) > 0 && time.Now().After(shown[0].NotAfter):
		refuse(http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	case state == nodeDeleted && (node || lease):
		refuse(http.StatusNotFound, "NotFound", `nodes "node" not found`)
	case state == webhookFails && r.Method != http.MethodGet:
		refuse(http.StatusInternalServerError, "InternalError", `Internal error occurred: failed calling webhook `+
			`"bad.example.com": failed to call webhook: Post "https://10.203.0.1:9/x?timeout=2s": dial tcp `+
			`10.203.0.1:9: connect: connection refused`)
	case r.Method != http.MethodGet:
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	case node:
		ready, pressure := `"True","reason":"KubeletReady"`, `"False"`
		if state == nodeUnknown {
			ready = `"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status."`
		}
		if state == diskPressure {
			pressure = `"True","message":"kubelet has disk pressure"`
		}
		since := time.Now().Add(-5 * time.Minute).UTC().Format(time.RFC3339)
		fmt.Fprintf(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"node","resourceVersion":"1"},"status":{
			"nodeInfo":{"kubeletVersion":"v1.36.2"},"conditions":[
			{"type":"Ready","status":%s,"lastTransitionTime":%q},
			{"type":"DiskPressure","status":%s,"lastTransitionTime":%[2]q}]}}`, ready, since, pressure)
	case lease:
		renewed := time.Now().Add(-3 * time.Second)
		if state == webhookFails || state == nodeUnknown {
			renewed = renewed.Add(-time.Minute)
		}
		fmt.Fprintf(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"node",
			"namespace":"kube-node-lease","resourceVersion":"1"},"spec":{"renewTime":%q}}`,
			renewed.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
	default:
		fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

func block(kind string, data []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
}

// pair returns a client certificate that ends in so long, with its key, as the kubelet keeps them: in one file.
func pair(t *testing.T, ends time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	e2etest.Must(t, err)
	until := time.Now().Add(ends)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: until.Add(-24 * time.Hour), NotAfter: until,
		Subject:     pkix.Name{CommonName: "system:node:node", Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	e2etest.Must(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	e2etest.Must(t, err)
	return block("CERTIFICATE", der) + block("EC PRIVATE KEY", secret)
}
