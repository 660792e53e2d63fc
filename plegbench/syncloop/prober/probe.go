package prober

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/exec"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// An outcome is the result of one run of a probe, in the kubelet's terms.
type outcome string

const (
	success outcome = "success"
	warning outcome = "warning" // counts as success
	failure outcome = "failure"
	unknown outcome = "unknown" // the probe could not be run
)

const (
	mostTries  = 3                 // of a probe that cannot be run (maxProbeRetries upstream); a failure is not retried
	mostOutput = 10 << 10          // bytes of a container's answer
	userAgent  = "kube-probe/1.36" // servers match its beginning
)

// try runs the probe, again if it cannot be run, and records an event for everything but success.
func (w *worker) try(ctx context.Context, st *v1.PodStatus) (Result, error) {
	var out outcome
	var text string
	var err error
	for range mostTries {
		if out, text, err = w.once(ctx, st); err == nil || ctx.Err() != nil {
			break
		}
	}
	keys := []any{
		"probeType", w.key.kind, "pod", w.ref, "podUID", w.key.uid, "containerName", w.container.Name, "probeResult", out,
	}
	switch {
	case ctx.Err() != nil:
		return Unknown, ctx.Err() // the end of the syncLoop, not a result
	case err != nil:
		w.m.Log.V(1).Info("Probe errored", append(keys, "err", err)...)
		w.event("Unhealthy", "%s probe errored and resulted in %s state: %s", w.key.kind, out, err)
		return Failure, err
	case out == warning:
		w.event("ProbeWarning", "%s probe warning: %s", w.key.kind, text)
	case out == failure:
		w.m.Log.V(1).Info("Probe failed", append(keys, "output", text)...)
		w.event("Unhealthy", "%s probe failed: %s", w.key.kind, text)
		return Failure, nil
	}
	return Success, nil
}

// event records a warning about the container.
func (w *worker) event(reason, format string, args ...any) {
	w.m.Recorder.Eventf(pod.Reference(w.pod, w.container), v1.EventTypeWarning, reason, format, args...)
}

// once runs the probe one time. It is an error if the probe could not be run.
func (w *worker) once(ctx context.Context, st *v1.PodStatus) (outcome, string, error) {
	timeout := time.Duration(w.spec.TimeoutSeconds) * time.Second
	switch p := w.spec; {
	case p.Exec != nil:
		env := map[string]string{} // only the values in the spec itself
		for _, e := range w.container.Env {
			env[e.Name] = e.Value
		}
		return w.exec(ctx, pod.ExpandAll(p.Exec.Command, env), timeout)
	case p.HTTPGet != nil:
		req, err := request(ctx, p.HTTPGet, w.container, st.PodIP)
		if err != nil {
			return unknown, "", err
		}
		return get(req, timeout)
	case p.TCPSocket != nil:
		port, err := portOf(p.TCPSocket.Port, w.container)
		if err != nil {
			return unknown, "", err
		}
		d := dialer()
		d.Timeout = timeout
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(cmp.Or(p.TCPSocket.Host, st.PodIP), strconv.Itoa(port)))
		if err != nil {
			return failure, err.Error(), nil
		}
		_ = conn.Close() // nothing was sent that could be lost
		return success, "", nil
	case p.GRPC != nil:
		var service string
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		if err := w.m.GRPC(ctx, net.JoinHostPort(st.PodIP, strconv.Itoa(int(p.GRPC.Port))), service, timeout); err != nil {
			return failure, err.Error(), nil
		}
		return success, "service healthy", nil
	}
	return unknown, "", fmt.Errorf("missing probe handler for %s:%s", pod.Format(w.pod), w.container.Name)
}

// exec runs a command in the container. It is an error only if the runtime cannot run it at all.
func (w *worker) exec(ctx context.Context, command []string, timeout time.Duration) (outcome, string, error) {
	data, err := w.m.Exec(ctx, w.id, command, timeout)
	text := string(data[:min(len(data), mostOutput)])
	var exit exec.ExitError
	switch {
	case err == nil:
		return success, text, nil
	case errors.As(err, &exit):
		return failure, text, nil
	case remote.IsDeadlineExceeded(err):
		return failure, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout), nil
	}
	return unknown, "", err
}
