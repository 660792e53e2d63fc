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

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// An outcome is what one run of a probe has come to, in the kubelet's words.
type outcome string

const (
	success outcome = "success"
	warning outcome = "warning" // counts as success
	failure outcome = "failure"
	unknown outcome = "unknown" // the probe could not be run
)

// mostTries is how often a probe that cannot be run is tried in a row (maxProbeRetries upstream). A failure is not tried again.
const mostTries = 3

// mostOutput is how much of a container's answer is taken, in bytes.
const mostOutput = 10 << 10

// try runs the probe, again if it cannot be run, and tells the pod's events about anything but success.
func (w *worker) try(ctx context.Context, st *v1.PodStatus) (Result, error) {
	var out outcome
	var text string
	var err error
	for range mostTries {
		if out, text, err = w.once(ctx, st); err == nil || ctx.Err() != nil {
			break
		}
	}
	log := w.m.cfg.Log
	switch {
	case ctx.Err() != nil:
		return Unknown, ctx.Err() // it was the end of the syncLoop that ended it
	case err != nil:
		log.V(1).Info("Probe errored", append(w.about("probeType", w.key.kind), "probeResult", out, "err", err)...)
		w.event("Unhealthy", "%s probe errored and resulted in %s state: %s", w.key.kind, out, err)
		return Failure, err
	case out == warning:
		w.event("ProbeWarning", "%s probe warning: %s", w.key.kind, text)
		log.V(3).Info("Probe succeeded with a warning", append(w.about("probeType", w.key.kind), "output", text)...)
		return Success, nil
	case out == failure:
		log.V(1).Info("Probe failed", append(w.about("probeType", w.key.kind), "probeResult", out, "output", text)...)
		w.event("Unhealthy", "%s probe failed: %s", w.key.kind, text)
		return Failure, nil
	}
	log.V(3).Info("Probe succeeded", w.about("probeType", w.key.kind)...)
	return Success, nil
}

// event records a warning about the container.
func (w *worker) event(reason, format string, args ...any) {
	w.m.cfg.Recorder.Eventf(pod.Reference(w.pod, w.container), v1.EventTypeWarning, reason, format, args...)
}

// once runs the probe one time. An error means that it could not be run.
func (w *worker) once(ctx context.Context, st *v1.PodStatus) (outcome, string, error) {
	timeout := time.Duration(w.spec.TimeoutSeconds) * time.Second
	log := w.m.cfg.Log.V(4)
	switch p := w.spec; {
	case p.Exec != nil:
		log.Info("Exec-Probe runProbe", append(w.about(), "execCommand", p.Exec.Command)...)
		env := map[string]string{} // the values that the spec itself has
		for _, e := range w.container.Env {
			env[e.Name] = e.Value
		}
		return w.exec(ctx, pod.ExpandAll(p.Exec.Command, env), timeout)
	case p.HTTPGet != nil:
		req, err := pod.HTTPRequest(ctx, p.HTTPGet, w.container, st.PodIP, userAgent)
		if err != nil {
			log.Info("HTTP-Probe failed to create request", "error", err)
			return unknown, "", err
		}
		log.Info("HTTP-Probe", "scheme", req.URL.Scheme, "host", req.URL.Hostname(), "port", req.URL.Port(), "path", req.URL.Path,
			"timeout", timeout, "headers", p.HTTPGet.HTTPHeaders, "probeType", w.key.kind)
		return get(req, timeout)
	case p.TCPSocket != nil:
		port, err := pod.Port(p.TCPSocket.Port, w.container)
		if err != nil {
			log.Info("TCP-Probe failed to resolve port", "error", err)
			return unknown, "", err
		}
		host := cmp.Or(p.TCPSocket.Host, st.PodIP)
		log.Info("TCP-Probe", "host", host, "port", port, "timeout", timeout)
		return connect(ctx, net.JoinHostPort(host, strconv.Itoa(port)), timeout)
	case p.GRPC != nil:
		var service string
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		log.Info("GRPC-Probe", "host", st.PodIP, "service", service, "port", p.GRPC.Port, "timeout", timeout)
		if err := w.m.cfg.GRPC(ctx, net.JoinHostPort(st.PodIP, strconv.Itoa(int(p.GRPC.Port))), service, timeout); err != nil {
			return failure, err.Error(), nil
		}
		return success, "service healthy", nil
	}
	log.Info("Failed to find probe builder for container", "containerName", w.container.Name)
	return unknown, "", fmt.Errorf("missing probe handler for %s:%s", pod.Format(w.pod), w.container.Name)
}

// exec runs a command in the container. Only a runtime that cannot run it at all is an error.
func (w *worker) exec(ctx context.Context, command []string, timeout time.Duration) (outcome, string, error) {
	data, err := w.m.cfg.Exec(ctx, w.id, command, timeout)
	text := string(data[:min(len(data), mostOutput)])
	w.m.cfg.Log.V(4).Info("Exec probe response", "output", text)
	var exit interface{ ExitStatus() int }
	switch {
	case err == nil, errors.As(err, &exit) && exit.ExitStatus() == 0:
		return success, text, nil
	case exit != nil:
		return failure, text, nil
	case remote.IsDeadlineExceeded(err):
		return failure, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout), nil
	}
	return unknown, "", err
}
