package kuberuntime

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
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// An ExitError is the end of a command that ran in a container and did not exit with 0.
type ExitError struct {
	Command []string
	Code    int
	Stderr  string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(e.Command, " "), e.Code, e.Stderr)
}

// ExitStatus returns the exit code.
func (e *ExitError) ExitStatus() int { return e.Code }

// Exec runs a command in a container and returns what it wrote, standard output first. The error is an *ExitError if the
// command ran but exited with another code than 0. A timeout of 0 means none.
func (m *Manager) Exec(ctx context.Context, id container.ID, cmd []string, timeout time.Duration) ([]byte, error) {
	resp, err := m.CRI.ExecSync(ctx, id.ID, cmd, timeout)
	if err != nil {
		return nil, err
	}
	out := append(resp.GetStdout(), resp.GetStderr()...)
	if code := int(resp.GetExitCode()); code != 0 {
		return out, &ExitError{Command: cmd, Code: code, Stderr: string(resp.GetStderr())}
	}
	return out, nil
}

// runHook runs a lifecycle hook to its end. The message explains an error.
func (m *Manager) runHook(
	ctx context.Context, pod *v1.Pod, c *v1.Container, id container.ID, h *v1.LifecycleHandler,
) (message string, err error) {
	log := m.Log.V(1)
	switch {
	case h.Exec != nil:
		out, err := m.Exec(ctx, id, h.Exec.Command, 0)
		if err != nil {
			log.Info("Exec lifecycle hook for Container in Pod failed", "execCommand", h.Exec.Command, "containerName", c.Name,
				"pod", klog.KObj(pod), "message", string(out), "err", err)
			message = fmt.Sprintf("Exec lifecycle hook (%v) for Container %q in Pod %q failed - error: %v, message: %q",
				h.Exec.Command, c.Name, describe(pod), err, out)
		}
		return message, err
	case h.HTTPGet != nil:
		err := m.httpHook(ctx, pod, c, h.HTTPGet)
		if err != nil {
			log.Info("HTTP lifecycle hook for Container in Pod failed", "path", h.HTTPGet.Path, "containerName", c.Name,
				"pod", klog.KObj(pod), "err", err)
			message = fmt.Sprintf("HTTP lifecycle hook (%s) for Container %q in Pod %q failed - error: %v",
				h.HTTPGet.Path, c.Name, describe(pod), err)
		}
		return message, err
	case h.Sleep != nil:
		timer := time.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
			return "", nil
		case <-ctx.Done():
		}
		err := errors.New("container terminated before sleep hook finished")
		log.Info("Sleep lifecycle hook for Container in Pod failed", "sleepSeconds", h.Sleep.Seconds, "containerName", c.Name,
			"pod", klog.KObj(pod), "err", err)
		return fmt.Sprintf("Sleep lifecycle hook (%d) for Container %q in Pod %q failed - error: %v",
			h.Sleep.Seconds, c.Name, describe(pod), err), err
	}
	err = fmt.Errorf("invalid handler: %v", h) // a tcpSocket hook was never supported
	m.Log.Error(err, "Cannot run handler")
	return fmt.Sprintf("Cannot run handler: %v", err), err
}

// hookBody bounds how much of an answer is read, in bytes.
const hookBody = 10 << 10

// httpHook sends a hook's request. Any answer is good, whatever its status. Certificates are not verified: a container's is
// hardly ever issued for the pod's address.
func (m *Manager) httpHook(ctx context.Context, pod *v1.Pod, c *v1.Container, get *v1.HTTPGetAction) error {
	host := get.Host
	if host == "" {
		var err error
		if host, err = m.podIP(ctx, pod); err != nil {
			return err
		}
	}
	req, err := hookRequest(ctx, c, get, host)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Hostname() != via[0].URL.Hostname() {
			return http.ErrUseLastResponse
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil && req.URL.Scheme == "https" && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		m.Log.V(1).Info("HTTPS request to lifecycle hook got HTTP response, retrying with HTTP.", "pod", klog.KObj(pod),
			"host", req.URL.Host, "err", err)
		req = req.Clone(ctx)
		req.URL.Scheme = "http"
		req.Header.Del("Authorization")
		resp, err = client.Do(req)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, hookBody)) // the answer has come, its body says nothing
	return nil
}

// podIP asks the runtime for a pod's address.
func (m *Manager) podIP(ctx context.Context, pod *v1.Pod) (string, error) {
	listed, err := m.GetPod(ctx, pod.UID)
	if err != nil {
		return "", fmt.Errorf("unable to get pod, event handlers may be invalid: %w", err)
	}
	for _, s := range listed.Sandboxes[:min(1, len(listed.Sandboxes))] {
		st, err := m.CRI.PodSandboxStatus(ctx, s.ID.ID)
		if err != nil {
			return "", fmt.Errorf("unable to get pod status, event handlers may be invalid: %w", err)
		}
		if ips := m.sandboxIPs(st); len(ips) > 0 {
			return ips[0], nil
		}
	}
	return "", fmt.Errorf("the sandbox of pod %s has no address to send the hook's request to", describe(pod))
}

func hookRequest(ctx context.Context, c *v1.Container, get *v1.HTTPGetAction, host string) (*http.Request, error) {
	port, err := hookPort(c, get.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path}
	}
	if u.Scheme = strings.ToLower(string(get.Scheme)); u.Scheme == "" {
		u.Scheme = "http"
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "kube-lifecycle/1.36")
	req.Header.Set("Accept", "*/*")
	seen := map[string]bool{}
	for _, h := range get.HTTPHeaders {
		name := http.CanonicalHeaderKey(h.Name)
		if !seen[name] {
			req.Header.Del(name) // the pod's own go before ours
		}
		seen[name] = true
		req.Header.Add(name, h.Value)
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

// hookPort is a port by number or by its name in the container.
func hookPort(c *v1.Container, port intstr.IntOrString) (int, error) {
	n := port.IntValue()
	if port.Type == intstr.String && n == 0 {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				n = int(p.ContainerPort)
			}
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("invalid port: %s", port.String())
	}
	return n, nil
}
