package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// answerTimeout is how long a server may take for one answer. All that the kubelet is asked for comes from its
	// memory; the kubelet gives the API server 10 s to renew a lease.
	answerTimeout = 4 * time.Second
	// leastHang is how long an answer that the end of the command cuts short must have been outstanding to hang.
	leastHang = time.Second
	maxBody   = 16 << 20 // bytes; /metrics of a kubelet with 500 pods has some 2 MiB
)

// A serverClient asks one server. All of an answer has to arrive within timeout.
type serverClient struct {
	client     *http.Client
	base       string // without a slash at the end
	token      string
	credential string // that opens the kubelet's server, in words
	given      bool   // by a person, for this
	timeout    time.Duration
	most       int64 // bytes of a body
}

// newClient returns a client that asks where it was sent alone: no proxy, no redirect.
func newClient(base string, conf *tls.Config) serverClient {
	return serverClient{base: base, timeout: answerTimeout, most: maxBody, client: &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: conf, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
			IdleConnTimeout: answerTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// A reply is the answer to one request, its body bounded.
type reply struct {
	status int
	header http.Header
	body   []byte
	start  time.Time
	took   time.Duration // until the header
	// accepted is set when there was a connection.
	accepted bool
}

// get reads the answer to one request.
func (c serverClient) get(ctx context.Context, path string) (reply, error) {
	r := reply{start: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var accepted atomic.Bool // a dial may outlast the request
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectDone: func(_, _ string, err error) { accepted.CompareAndSwap(false, err == nil) },
		GotConn:     func(httptrace.GotConnInfo) { accepted.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return r, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.client.Do(req)
	r.took, r.accepted = time.Since(r.start), accepted.Load()
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	r.status, r.header = resp.StatusCode, resp.Header
	r.body, err = io.ReadAll(io.LimitReader(resp.Body, c.most))
	return r, err
}

// getOK is get where an answer other than 200 is an error.
func (c serverClient) getOK(ctx context.Context, path string) (reply, error) {
	r, err := c.get(ctx, path)
	if err == nil && r.status != http.StatusOK {
		err = fmt.Errorf("%d %s", r.status, http.StatusText(r.status))
	}
	return r, err
}

// whyNoAnswer words a request that failed: either the server's certificate is not valid, or something else went wrong.
func whyNoAnswer(err error) (tlsError, other string) {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the URL, which stands beside it
	}
	verify, isVerify := errors.AsType[*tls.CertificateVerificationError](err)
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	switch {
	case isVerify:
		c := verify.UnverifiedCertificates[0]
		return oneLine(fmt.Sprintf("the API server's certificate (%s, until %s): %s", c.Subject,
			c.NotAfter.UTC().Format(time.DateTime), strings.TrimPrefix(verify.Err.Error(), "x509: "))), ""
	case isLookup:
		return "", oneLine("DNS: " + lookup.Name + " does not resolve: " + lookup.Err)
	case isTimeout(err):
		return "", "no answer in time"
	case errors.Is(err, unix.ECONNREFUSED):
		return "", "connection refused: nothing listens there"
	}
	return "", oneLine(err.Error())
}

// reasonUnanswered is whyNoAnswer in one text.
func reasonUnanswered(err error) string {
	tlsError, other := whyNoAnswer(err)
	return tlsError + other
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err) // which context.DeadlineExceeded and unix.ETIMEDOUT are too
	return ok && timeout.Timeout()
}
