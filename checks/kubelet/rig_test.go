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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A tree is a host's root for a test.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree {
	t.Helper()
	return tree{t, t.TempDir()}
}

func (h tree) file(name, text string) {
	h.t.Helper()
	name = filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h tree) program(name string) {
	h.t.Helper()
	h.file(name, "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(h.root, name), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func (h tree) link(target, name string) {
	h.t.Helper()
	name = filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		h.t.Fatal(err)
	}
}

func (h tree) process(pid, comm string, argv ...string) {
	h.t.Helper()
	h.file("proc/"+pid+"/comm", comm+"\n")
	h.file("proc/"+pid+"/cmdline", strings.Join(append(argv, ""), "\x00"))
	h.file("proc/"+pid+"/status", "Name:\t"+comm+"\nNSpid:\t"+pid+"\n")
	h.file("etc/hostname", "Worker-1\n")
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{t, cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// pair makes a certificate and its key, both as PEM.
func (i issuer) pair(name string, from, to time.Time) (certificate, key string) {
	i.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, &private.PublicKey, i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		i.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

// node is the pair of a node, valid for this hour.
func (i issuer) node() (certificate, key string) {
	return i.pair("system:node:worker-1", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// expired is the pair of a node, over since an hour.
func (i issuer) expired() (certificate, key string) {
	return i.pair("system:node:worker-1", time.Now().Add(-24*time.Hour), time.Now().Add(-time.Hour))
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
	if err != nil {
		i.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(i.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
}
