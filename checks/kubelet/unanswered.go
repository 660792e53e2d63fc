package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/sys/unix"
)

// whyNoAnswer words a request that failed: either its certificate does not hold, or something else went wrong.
func whyNoAnswer(err error) (tlsError, other string) {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the URL, which stands beside it
	}
	if text := whyNotTrusted(err); text != "" {
		return text, ""
	}
	tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case isTimeout(err):
		return "", "no answer in time"
	case isTooLarge:
		return "", fmt.Sprintf("the answer has more than %d bytes", tooLarge.Limit)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "", "the answer ends too early"
	case isDNS && dns.IsNotFound:
		return "", "the name " + oneLine(dns.Name) + " is not known to DNS"
	case isDNS:
		return "", "resolving the name " + oneLine(dns.Name) + ": " + oneLine(dns.Err)
	case errors.Is(err, unix.ECONNREFUSED):
		return "", "connection refused: nothing listens there"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return "", "no route to the host"
	case errors.Is(err, unix.ECONNRESET):
		return "", "the connection was reset"
	}
	return "", oneLine(err.Error())
}

// whyNotTrusted is empty for an error that is not about the server's certificate.
func whyNotTrusted(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		c := invalid.Cert
		return fmt.Sprintf("the certificate of %s holds from %s to %s only", oneLine(c.Subject.CommonName),
			c.NotBefore.UTC().Format("2006-01-02 15:04:05Z"), c.NotAfter.UTC().Format("2006-01-02 15:04:05Z"))
	}
	if host, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is not for " + oneLine(host.Host)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is not signed by the authority that the kubeconfig names"
	}
	if verify, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return oneLine(verify.Err.Error())
	}
	return ""
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
