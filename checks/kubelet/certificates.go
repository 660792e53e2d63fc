package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	// defaultCertDir is --cert-dir's default.
	defaultCertDir = "/var/lib/kubelet/pki"
	// defaultKubeconfig is where kubeadm has it. It is read when no kubelet runs that would name its own.
	defaultKubeconfig = "/etc/kubernetes/kubelet.conf"
	// clientFile and servingFile are the newest pair, key and certificate, that the kubelet was given
	// (k8s.io/client-go/util/certificate); ownFile is the one that it signs itself when it asks for none.
	clientFile  = "kubelet-client-current.pem"
	servingFile = "kubelet-server-current.pem"
	ownFile     = "kubelet.crt"
	// nodeUser begins the common name of a node's certificate.
	nodeUser = "system:node:"
)

// ReadCertificates reads the certificate by which the API server knows the kubelet, and the one with which it serves.
// Where no kubelet runs (PID 0), those are read that it would start with where kubeadm puts them. Private keys, which
// stand in the same files, are passed over. A kubelet with a token or a program for a credential has no client
// certificate; one that rotates it may have two, the one of its kubeconfig first.
func ReadCertificates(ctx context.Context, root string, s Settings) ([]Certificate, error) {
	all := crictl.SeenBy(root, s.PID)
	var out []Certificate
	path, data, err := clientPEM(all, &s)
	if !errors.Is(err, errNoClientCertificate) {
		out = append(out, newCertificate("client", path, data, err))
	}
	if given := rotatedPath(&s); given != "" && path != given {
		if data, err := all.Read(given); err == nil {
			out = append(out, newCertificate("client", given, data, nil))
		}
	}
	if ctx.Err() != nil {
		return out, fmt.Errorf("reading certificates: %w", ctx.Err())
	}
	dir := cmp.Or(s.CertDir, defaultCertDir)
	names := []string{filepath.Join(dir, servingFile), filepath.Join(dir, ownFile)}
	if s.PID != 0 && !s.RotateServing && len(s.Problems) == 0 {
		names = names[1:] // without serverTLSBootstrap one that was given earlier lies there unused
	}
	if s.TLSCertFile != "" {
		names = []string{s.TLSCertFile}
	}
	serving := Certificate{Err: crictl.Absent}
	for _, name := range names {
		if serving.Err == crictl.Absent {
			data, err := all.Read(name)
			serving = newCertificate("serving", name, data, err)
		}
	}
	out = append(out, serving)
	if s.PID == 0 && !slices.ContainsFunc(out, func(c Certificate) bool { return c.Err != crictl.Absent }) {
		return nil, errors.New("reading certificates: no kubelet runs, and there are none where kubeadm puts them")
	}
	return out, nil
}

// newCertificate describes the certificate in a file that was read, or not.
func newCertificate(role, path string, data []byte, err error) Certificate {
	c := Certificate{Role: role, Path: oneLine(path)}
	if err != nil {
		c.Err = err.Error()
	} else if leaf, err := parseCertificate(data); err != nil {
		c.Err = err.Error()
	} else {
		c.Subject, c.NotBefore, c.NotAfter = oneLine(leaf.Subject.CommonName), leaf.NotBefore, leaf.NotAfter
	}
	return c
}

// errNoClientCertificate is the error for a kubelet with another credential, or with none.
var errNoClientCertificate = errors.New("the kubelet has no client certificate")

// clientPEM reads the client certificate: in the file that the kubeconfig names, or in the kubeconfig itself, else
// where the kubelet keeps the one that it was given.
func clientPEM(all crictl.HostFiles, s *Settings) (path string, data []byte, err error) {
	name := s.Kubeconfig
	if s.PID == 0 {
		name = cmp.Or(name, defaultKubeconfig)
	}
	named := &api.AuthInfo{}
	if name != "" {
		_, u, unreadable := readKubeconfig(all, name)
		switch {
		case unreadable != nil:
		case len(u.ClientCertificateData) > 0:
			return name, u.ClientCertificateData, nil
		default:
			named, name = u, ""
		}
	}
	path = cmp.Or(named.ClientCertificate, filepath.Join(cmp.Or(s.CertDir, defaultCertDir), clientFile))
	data, err = all.Read(path)
	// A kubeconfig may have a token or a program, and a standalone kubelet has no kubeconfig.
	if err != nil && name == "" && named.ClientCertificate == "" {
		err = errNoClientCertificate
	}
	return path, data, err
}

// rotatedPath is where a kubelet that renews its certificate keeps the newest pair; empty where none does.
func rotatedPath(s *Settings) string {
	if s.PID == 0 || !s.RotateClient {
		return ""
	}
	return filepath.Join(cmp.Or(s.CertDir, defaultCertDir), clientFile)
}

// current returns the credential that the kubelet uses: one that renews its certificate uses the newest pair until that
// expires, whatever stands in its kubeconfig (getCurrentCertificateOrBootstrap in k8s.io/client-go/util/certificate).
func current(all crictl.HostFiles, s *Settings, named *api.AuthInfo) *api.AuthInfo {
	given := rotatedPath(s)
	if given == "" {
		return named
	}
	rotated := &api.AuthInfo{ClientCertificate: given, ClientKey: given}
	if pair, err := clientPair(all, rotated); err != nil || pair.Leaf == nil || time.Now().After(pair.Leaf.NotAfter) {
		return named
	}
	return rotated
}

// clientPair is the node's own certificate with its key, for a TLS handshake.
func clientPair(all crictl.HostFiles, u *api.AuthInfo) (tls.Certificate, error) {
	certificate, err := either(all, u.ClientCertificateData, u.ClientCertificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := either(all, u.ClientKeyData, u.ClientKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, errors.New("the client certificate and its key do not match")
	}
	return pair, nil
}

// parseCertificate reads the first certificate of a PEM file, the leaf, and passes over keys.
func parseCertificate(data []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds a certificate that is malformed: %s", oneLine(err.Error()))
		}
		return leaf, nil
	}
	return nil, errors.New("holds no certificate")
}
