package prober

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// userAgent is what a probed server sees: the kubelet's kube-probe/, which servers look for, and then not its version.
const userAgent = "kube-probe/kdiag"

// get makes the request on a connection of its own, past any proxy, whatever certificate the server shows. An answer from 200
// to 399 is a success; no answer is a failure like a bad one.
func get(req *http.Request, timeout time.Duration) (outcome, string, error) {
	client := http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, DisableCompression: true,
			DialContext: dialer().DialContext, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		},
		CheckRedirect: pod.SameHost,
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
