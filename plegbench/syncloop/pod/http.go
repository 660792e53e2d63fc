package pod

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// HTTPRequest makes the request of an HTTP probe or hook of a container. host and userAgent are used if the action has none.
func HTTPRequest(ctx context.Context, get *v1.HTTPGetAction, c *v1.Container, host, userAgent string) (*http.Request, error) {
	port, err := Port(get.Port, c)
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

// Port resolves a port: a number, a number as a string, or the name of one of the container's ports.
func Port(port intstr.IntOrString, c *v1.Container) (int, error) {
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

// HTTPClient makes the client of a probe or hook: each request has its own connection, any certificate is accepted, and redirects
// are followed only on the same host, at most ten times. A timeout of 0 means none.
func HTTPClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, DisableCompression: true,
			DialContext: Dialer().DialContext, ForceAttemptHTTP2: true,
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
}

// Dialer makes connections whose port is free again a second after their end, instead of a minute: a node with many probes would
// run out of ports (pkg/probe/dialer_others.go upstream).
func Dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}
