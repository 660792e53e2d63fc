package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sys/unix"
)

// A serverClient asks one server. All of an answer has to arrive within timeout.
type serverClient struct {
	client     *http.Client
	base       string // without a slash at the end
	token      string
	credential string // what opens the kubelet's server, in words
	timeout    time.Duration
}

// newClient returns a client that asks where it was sent alone: no proxy, no redirect.
func newClient(conf *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:        conf,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A reply is the answer to one request, its body bounded.
type reply struct {
	status int
	header http.Header
	body   []byte
	start  time.Time
	took   time.Duration // until the header
}

// get reads up to limit bytes of an answer.
func (c serverClient) get(ctx context.Context, path string, limit int64) (reply, error) {
	r := reply{start: time.Now()}
	err := c.stream(ctx, path, func(status int, header http.Header, body io.Reader) (err error) {
		r.status, r.header, r.took = status, header, time.Since(r.start)
		r.body, err = io.ReadAll(io.LimitReader(body, limit))
		return err
	})
	if r.status == 0 {
		r.took = time.Since(r.start)
	}
	return r, err
}

// problem is the error of an answer other than 200.
func (r reply) problem() error {
	if r.status == http.StatusOK {
		return nil
	}
	return fmt.Errorf("%d %s", r.status, http.StatusText(r.status))
}

// read parses the body of a 200, up to maxBody.
func (c serverClient) read(ctx context.Context, path string, parse func(io.Reader) error) error {
	return c.stream(ctx, path, func(status int, _ http.Header, body io.Reader) error {
		if err := (reply{status: status}).problem(); err != nil {
			return err
		}
		return parse(http.MaxBytesReader(nil, io.NopCloser(body), maxBody))
	})
}

// stream hands the answer to one request to read as it arrives. Requests have goroutines of their own, so a panic is an
// error.
func (c serverClient) stream(
	ctx context.Context, path string, read func(int, http.Header, io.Reader) error,
) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("kdiag failed: %v", v)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return read(resp.StatusCode, resp.Header, resp.Body)
}

// whyNoAnswer words a request that failed: either the server's certificate is not valid, or something else went wrong.
func whyNoAnswer(err error) (tlsError, other string) {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the URL, which stands beside it
	}
	verify, isVerify := errors.AsType[*tls.CertificateVerificationError](err)
	tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isVerify:
		return oneLine(verify.Err.Error()), ""
	case isTimeout(err):
		return "", "no answer in time"
	case isTooLarge:
		return "", fmt.Sprintf("the answer has more than %d bytes", tooLarge.Limit)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "", "the answer ends too early"
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
