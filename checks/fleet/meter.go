package fleet

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A meter counts what requests cost whose context has it, and compares the clocks. It is safe for use by several
// goroutines.
type meter struct {
	requests, bytes atomic.Int64 // bytes of the answers, after decompression
	ahead           atomic.Int64 // nanoseconds by which the server's clock is before ours; 0 while that is not known
}

type meterKey struct{}

func (m *meter) in(ctx context.Context) context.Context { return context.WithValue(ctx, meterKey{}, m) }

// now returns the time by the server's clock, up to a second too early: Date has whole seconds.
func (m *meter) now() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())).UTC() }

// metered is a transport that feeds meters.
type metered struct{ next http.RoundTripper }

// RoundTrip does a request.
func (t metered) RoundTrip(req *http.Request) (*http.Response, error) {
	m, ok := req.Context().Value(meterKey{}).(*meter)
	if !ok {
		return t.next.RoundTrip(req)
	}
	m.requests.Add(1)
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		m.ahead.Store(int64(time.Until(date)))
	}
	resp.Body = counted{resp.Body, &m.bytes}
	return resp, nil
}

type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}
