package prober

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
)

// userAgent is what a probed server sees: the kubelet's kube-probe/, which servers look for, and then not its version.
const userAgent = "kube-probe/kdiag"

// newRequest is the request of an HTTP probe.
func newRequest(ctx context.Context, get *v1.HTTPGetAction, c *v1.Container, podIP string) (*http.Request, error) {
	port, err := portOf(get.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path} // it was accepted so; the server may know better
	}
	u.Scheme = orElse(strings.ToLower(string(get.Scheme)), "http")
	u.Host = net.JoinHostPort(orElse(get.Host, podIP), strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	if accept, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

// get makes the request on a connection of its own, past any proxy, whatever certificate the server shows. An answer from 200
// to 399 is a success; no answer is a failure like a bad one.
func get(req *http.Request, timeout time.Duration) (outcome, string, error) {
	client := http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, DisableCompression: true,
			DialContext: dialer().DialContext, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		},
		CheckRedirect: redirect,
	}
	resp, err := client.Do(req)
	if err != nil {
		return failure, err.Error(), nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostOutput))
	switch {
	case err != nil:
		return failure, "", err
	case resp.StatusCode < http.StatusOK, resp.StatusCode >= http.StatusBadRequest:
		// The body is left out: it may hold what events must not show.
		return failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode), nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return warning, fmt.Sprintf("Probe terminated redirects, Response body: %s", body), nil
	}
	return success, string(body), nil
}

// redirect follows a server only to itself: another host's health is not this container's.
func redirect(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// connect succeeds if something accepts a connection.
func connect(ctx context.Context, addr string, timeout time.Duration) (outcome, string, error) {
	d := dialer()
	d.Timeout = timeout
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return failure, err.Error(), nil
	}
	_ = conn.Close() // nothing was sent that could be lost
	return success, "", nil
}

// dialer makes connections that leave nothing behind: a second after their end, instead of a minute, their port is free again,
// or a node with many probes would run out of ports (pkg/probe/dialer_others.go upstream).
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}
