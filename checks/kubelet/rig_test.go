package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/internal/testkit"
)

var must = testkit.Must

// equal compares whole values.
func equal(t *testing.T, want, got any, options ...cmp.Option) {
	t.Helper()
	testkit.Equal(t, "values", want, got, options...)
}

func process(h testkit.Tree, pid, comm string, argv ...string) {
	h.Helper()
	h.Write("proc/"+pid+"/comm", comm+"\n", "proc/"+pid+"/cmdline", strings.Join(append(argv, ""), "\x00"),
		"proc/"+pid+"/status", "Name:\t"+comm+"\nNSpid:\t"+pid+"\n", "etc/hostname", "Worker-1\n")
}

// An issuer signs certificates for a test.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newIssuer(t *testing.T) issuer {
	t.Helper()
	i := issuer{t: t, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	i.key, i.pem = i.sign(i.cert)
	return i
}

func (i issuer) sign(template *x509.Certificate) (key *ecdsa.PrivateKey, certificate string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(i.t, err)
	signer := i.key
	if signer == nil { // its own certificate
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, &key.PublicKey, signer)
	must(i.t, err)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// pair makes a certificate and its key, both as PEM.
func (i issuer) pair(name string, from, to time.Time) (certificate, key string) {
	i.t.Helper()
	private, certificate := i.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalECPrivateKey(private)
	must(i.t, err)
	return certificate, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// node is the pair of a node, valid for this hour.
func (i issuer) node() (certificate, key string) {
	return i.pair("system:node:worker-1", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// embedded is a kubeconfig's user with a pair in it.
func embedded(certificate, key string) string {
	text := base64.StdEncoding.EncodeToString
	return "client-certificate-data: " + text([]byte(certificate)) + "\n    client-key-data: " + text([]byte(key))
}

// serving is the handshake of a server with a certificate for that time.
func (i issuer) serving(from, to time.Time) *tls.Config {
	i.t.Helper()
	certificate, key := i.pair("server", from, to)
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	must(i.t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(i.pem))
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
}

// kubeconfig is a file as kubeadm writes it, with the fields of its user.
func kubeconfig(server, user string) string {
	return `apiVersion: v1
kind: Config
clusters:
- name: other
  cluster: {server: "https://192.0.2.1"}
- name: kubernetes
  cluster:
    server: ` + server + `
    certificate-authority: ca.crt
contexts:
- name: system:node:worker-1@kubernetes
  context: {cluster: kubernetes, user: system:node:worker-1}
current-context: system:node:worker-1@kubernetes
users:
- name: system:node:worker-1
  user:
    ` + user + "\n"
}
