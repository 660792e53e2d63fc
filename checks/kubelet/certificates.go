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
)

const (
	// defaultCertDir is --cert-dir's default.
	defaultCertDir = "/var/lib/kubelet/pki"
	// defaultKubeconfig is where kubeadm has it. It is looked at when no kubelet runs that would say where its own is.
	defaultKubeconfig = "/etc/kubernetes/kubelet.conf"
	// clientFile and servingFile are the newest pair, key and certificate, that the kubelet was given
	// (k8s.io/client-go/util/certificate); ownFile is the one that it signs itself when it asks for none.
	clientFile  = "kubelet-client-current.pem"
	servingFile = "kubelet-server-current.pem"
	ownFile     = "kubelet.crt"
	// nodeUser begins the common name of a node's certificate.
	nodeUser = "system:node:"
)

// ReadCertificates reads the certificate by which the kubelet is known to the API server, and the one with which it serves.
// Where no kubelet runs (PID 0), those are read that it would start with where kubeadm puts them. Private keys, which stand
// in the same files, are passed over. A kubelet with a token or a program for a credential has no client certificate; one that rotates it
// may have two, that of its kubeconfig first.
func ReadCertificates(ctx context.Context, root string, s Settings) ([]Certificate, error) {
	all := seenBy(root, s.PID)
	var out []Certificate
	client := Certificate{Role: "client", Path: oneLine(clientPath(all, &s))}
	switch data, err := clientPEM(all, &s); {
	case errors.Is(err, errNoClientCertificate):
	case err != nil:
		client.Err = oneLine(err.Error())
		out = append(out, client)
	default:
		client.read(data)
		out = append(out, client)
	}
	if given := rotatedPath(&s); given != "" && client.Path != oneLine(given) {
		if data, err := all.read(given); err == nil {
			rotated := Certificate{Role: "client", Path: oneLine(given)}
			rotated.read(data)
			out = append(out, rotated)
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
	for i, name := range names {
		data, err := all.read(name)
		if err != nil && i+1 < len(names) && reasonOf(err) == absent {
			continue
		}
		serving := Certificate{Role: "serving", Path: oneLine(name)}
		if err != nil {
			serving.Err = reasonOf(err)
		} else {
			serving.read(data)
		}
		out = append(out, serving)
		break
	}
	if s.PID == 0 && !slices.ContainsFunc(out, func(c Certificate) bool { return c.Err != absent }) {
		return nil, errors.New("reading certificates: no kubelet runs that would say where its own are, and there are none where kubeadm puts them")
	}
	return out, nil
}

func (c *Certificate) read(data []byte) {
	leaf, err := parseCertificate(data)
	if err != nil {
		c.Err = err.Error()
		return
	}
	c.Subject = oneLine(leaf.Subject.CommonName)
	c.NotBefore, c.NotAfter = leaf.NotBefore, leaf.NotAfter
}

// errNoClientCertificate says that the kubelet is known by something else.
var errNoClientCertificate = errors.New("the kubelet has no client certificate")

// clientPath is where the client certificate is: in the file that the kubeconfig names, or in the kubeconfig itself, else
// where the kubelet keeps the one that it was given.
func clientPath(all files, s *Settings) string {
	if name := kubeconfigOf(s); name != "" {
		_, u, err := readKubeconfig(all, name)
		switch {
		case err != nil:
		case len(u.CertificateData) > 0:
			return name
		case u.Certificate != "":
			return u.Certificate
		}
	}
	return filepath.Join(cmp.Or(s.CertDir, defaultCertDir), clientFile)
}

// clientPEM reads what stands at clientPath.
func clientPEM(all files, s *Settings) ([]byte, error) {
	var none bool
	if name := kubeconfigOf(s); name != "" {
		_, u, err := readKubeconfig(all, name)
		if err == nil && len(u.CertificateData) > 0 {
			return u.CertificateData, nil
		}
		none = err == nil && u.Certificate == "" // a token, or a program
	}
	data, err := all.read(clientPath(all, s))
	switch {
	case err == nil:
		return data, nil
	case none || kubeconfigOf(s) == "":
		return nil, errNoClientCertificate
	}
	return nil, errors.New(reasonOf(err))
}

// rotatedPath is where a kubelet that renews its certificate keeps the newest pair; empty where none does.
func rotatedPath(s *Settings) string {
	if s.PID == 0 || !s.RotateClient {
		return ""
	}
	return filepath.Join(cmp.Or(s.CertDir, defaultCertDir), clientFile)
}

// knownBy is by what the API server knows the kubelet: one that renews its certificate goes by the newest pair until that expires, whatever
// stands in its kubeconfig (getCurrentCertificateOrBootstrap in k8s.io/client-go/util/certificate).
func knownBy(all files, s *Settings, named user) user {
	given := rotatedPath(s)
	if given == "" {
		return named
	}
	rotated := user{Certificate: given, Key: given}
	if pair, err := clientPair(all, rotated); err != nil || pair.Leaf == nil || time.Now().After(pair.Leaf.NotAfter) {
		return named
	}
	return rotated
}

// kubeconfigOf is empty for a kubelet without an API server.
func kubeconfigOf(s *Settings) string {
	if s.PID == 0 {
		return cmp.Or(s.Kubeconfig, defaultKubeconfig)
	}
	return s.Kubeconfig
}

// clientPair is the node's own certificate with its key, for a TLS handshake.
func clientPair(all files, u user) (tls.Certificate, error) {
	certificate, err := either(all, u.CertificateData, u.Certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := either(all, u.KeyData, u.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, errors.New("the client certificate and its key are no pair")
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
