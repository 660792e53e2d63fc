package kuberuntime

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
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
		select {
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
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

// hookAgent is what a server sees of a hook.
const hookAgent = "kube-lifecycle/1.36"

// hookBody bounds how much of an answer is read, in bytes.
const hookBody = 10 << 10

// httpHook sends a hook's request. Any answer is good, whatever its status. Certificates are not verified: a container's is
// hardly ever issued for the pod's address.
func (m *Manager) httpHook(ctx context.Context, p *v1.Pod, c *v1.Container, get *v1.HTTPGetAction) error {
	host := get.Host
	if host == "" {
		var err error
		if host, err = m.podIP(ctx, p); err != nil {
			return err
		}
	}
	req, err := pod.HTTPRequest(ctx, get, c, host, hookAgent)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, CheckRedirect: pod.SameHost}
	resp, err := client.Do(req)
	if err != nil && req.URL.Scheme == "https" && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		m.Log.V(1).Info("HTTPS request to lifecycle hook got HTTP response, retrying with HTTP.", "pod", klog.KObj(p),
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
