package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/exec"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// Exec runs a command in a container and returns what it wrote, standard output first. The error is an exec.ExitError
// if the command ran but exited with another code than 0. A timeout of 0 means none.
func (m *Manager) Exec(ctx context.Context, id container.ID, cmd []string, timeout time.Duration) ([]byte, error) {
	resp, err := m.CRI.ExecSync(ctx, id.ID, cmd, timeout)
	if err != nil {
		return nil, err
	}
	out := append(resp.GetStdout(), resp.GetStderr()...)
	if code := int(resp.GetExitCode()); code != 0 {
		err := fmt.Errorf("command '%s' exited with %d: %s", strings.Join(cmd, " "), code, resp.GetStderr())
		return out, exec.CodeExitError{Err: err, Code: code}
	}
	return out, nil
}

// runHook runs a lifecycle hook to its end. message explains an error.
func (m *Manager) runHook(
	ctx context.Context, p *v1.Pod, c *v1.Container, id container.ID, h *v1.LifecycleHandler,
) (message string, err error) {
	kind := ""
	switch {
	case h.Exec != nil:
		var out []byte
		if out, err = m.Exec(ctx, id, h.Exec.Command, 0); err != nil {
			kind, message = fmt.Sprintf("Exec lifecycle hook (%v)", h.Exec.Command), fmt.Sprintf(", message: %q", out)
		}
	case h.Sleep != nil:
		kind = fmt.Sprintf("Sleep lifecycle hook (%d)", h.Sleep.Seconds)
		select {
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
			err = errors.New("container terminated before sleep hook finished")
		}
	default: // HTTP; a tcpSocket hook was never supported upstream either
		err = fmt.Errorf("invalid handler: %v", h)
		m.Log.Error(err, "Cannot run handler")
		return fmt.Sprintf("Cannot run handler: %v", err), err
	}
	if err == nil {
		return "", nil
	}
	message = fmt.Sprintf("%s for Container %q in Pod %q failed - error: %v%s", kind, c.Name, describe(p), err, message)
	m.Log.V(1).Info("Lifecycle hook for Container in Pod failed",
		"containerName", c.Name, "pod", klog.KObj(p), "message", message)
	return message, err
}
