package prober

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/intstr"
)

// request makes the request of an HTTP probe of a container. host is used if the action has none.
func request(ctx context.Context, get *v1.HTTPGetAction, c *v1.Container, host string) (*http.Request, error) {
	port, err := portOf(get.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path} // the server may understand it
	}
	u.Scheme = cmp.Or(strings.ToLower(string(get.Scheme)), "http")
	u.Host = net.JoinHostPort(cmp.Or(get.Host, host), strconv.Itoa(port))
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

// portOf resolves a port: a number, a number as a string, or the name of one of the container's ports.
func portOf(port intstr.IntOrString, c *v1.Container) (int, error) {
	n := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				n = int(p.ContainerPort)
				break
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", port.String())
	}
	return n, nil
}

// get sends a request, on a connection of its own, whatever certificate the server has. An answer from 200 to 399 is a
// success; no answer is a failure like a bad one. Redirects are followed only on the same host.
func get(req *http.Request, timeout time.Duration) (outcome, string, error) {
	client := &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, DisableCompression: true,
			DialContext: dialer().DialContext, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
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
		// The body is left out: it may contain what events must not show.
		return failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode), nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return warning, fmt.Sprintf("Probe terminated redirects, Response body: %s", body), nil
	}
	return success, string(body), nil
}

// dialer makes connections whose port is free again a second after their end, instead of a minute: a node with many
// probes would run out of ports (pkg/probe/dialer_others.go upstream).
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}
