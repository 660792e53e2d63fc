package prober

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"k8s.io/utils/exec"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A worker runs one probe of one container, in all its instances.
type worker struct {
	m         *Manager
	key       key
	pod       *v1.Pod
	container *v1.Container
	spec      *v1.Probe
	results   *Results
	initial   Result          // of a new instance
	ctx       context.Context // the worker's, which stop ends
	stop      context.CancelFunc
	trigger   chan struct{} // probes out of turn

	// Of the worker's goroutine alone.
	id     container.ID // of the instance
	last   Result
	times  int32 // how often last was the outcome in a row
	onHold bool  // this instance is not probed again
}

func newWorker(m *Manager, at key, p *v1.Pod, c *v1.Container) *worker {
	w := &worker{
		m: m, key: at, pod: p, container: c, spec: at.kind.probe(c),
		results: [...]*Results{m.Liveness, m.Readiness, m.Startup}[at.kind],
		initial: [...]Result{Success, Failure, Unknown}[at.kind], trigger: make(chan struct{}, 1),
	}
	w.ctx, w.stop = context.WithCancel(m.ctx)
	return w
}

// run probes each period until the worker is stopped or its container is done.
func (w *worker) run() {
	defer w.end()
	period := time.Duration(w.spec.PeriodSeconds) * time.Second
	first := time.Duration(0)
	// After a restart there are many workers at once, which must not all probe at the same moment.
	if period > time.Since(w.m.start) {
		first = time.Duration(rand.Float64() * float64(period))
	}
	next := time.NewTimer(first)
	defer next.Stop()
	for trigger := (chan struct{})(nil); ; trigger = w.trigger { // not before the first probe
		at := time.Now()
		select {
		case <-w.ctx.Done():
			return
		case at = <-next.C:
		case <-trigger:
			w.m.Log.V(4).Info("Triggered Probe by manual run", "probeType", w.key.kind, "pod", klog.KObj(w.pod),
				"podUID", w.key.uid, "containerName", w.container.Name)
		}
		if !w.step(w.ctx) {
			return
		}
		next.Reset(time.Until(at.Add(period)))
	}
}

// end removes all traces of the worker.
func (w *worker) end() {
	w.stop()
	w.results.Remove(w.id)
	w.m.mu.Lock()
	delete(w.m.workers, w.key)
	w.m.mu.Unlock()
	for _, result := range []Result{Success, Failure, Unknown} {
		w.m.Metrics.ProbesTotal.DeleteLabelValues(w.labels(result)...)
	}
	w.m.Metrics.ProbesDuration.DeleteLabelValues(w.durationLabels()...)
}

// step probes once, if it is time, and reports whether the worker goes on.
func (w *worker) step(ctx context.Context) bool {
	st, _ := w.m.PodStatus(w.key.uid)
	if pod.IsTerminal(st.Phase) {
		return false
	}
	c := statusOf(&st, w.container.Name)
	if c == nil {
		return true // it was not created yet
	}
	if w.id.String() != c.ContainerID {
		w.results.Remove(w.id)
		w.id, w.onHold = container.ParseID(c.ContainerID), false
		switch before := w.m.ranBefore(c); {
		case !before: // one that was ready when an earlier kubelet ended stays so
			w.set(ctx, w.initial)
		case w.key.kind == startup && pod.IsSidecar(w.container) && c.Started != nil && *c.Started:
			w.set(ctx, Success) // the pod's initialization is judged by it
		}
	}
	switch {
	case w.onHold:
		return true
	case c.State.Running == nil:
		w.set(ctx, Failure)
		return c.State.Terminated == nil || pod.Restarts(w.pod, w.container, c.State.Terminated.ExitCode)
	case w.pod.DeletionTimestamp != nil && w.key.kind != readiness:
		w.set(ctx, Success) // a failure would end it before its grace period
		return false
	case int32(time.Since(c.State.Running.StartedAt.Time).Seconds()) < w.spec.InitialDelaySeconds:
		return true
	}
	// A startup probe runs before the container has started, the others after that.
	if started := c.Started != nil && *c.Started; started != (w.key.kind == startup) {
		w.probe(ctx, &st)
	}
	return true
}

// statusOf returns the status of a container that was created, or nil.
func statusOf(st *v1.PodStatus, name string) *v1.ContainerStatus {
	all := slices.Concat(st.ContainerStatuses, st.InitContainerStatuses)
	return pod.Find(all, func(c v1.ContainerStatus) bool { return c.Name == name && c.ContainerID != "" })
}

func (w *worker) set(ctx context.Context, r Result) { w.results.Set(ctx, w.id, w.key.uid, r) }

// probe runs the probe, and stores the result once it has occurred often enough in a row.
func (w *worker) probe(ctx context.Context, st *v1.PodStatus) {
	begin := time.Now()
	result, err := w.try(ctx, st)
	if err != nil {
		return // a probe that could not be run proves nothing
	}
	w.m.Metrics.ProbesTotal.WithLabelValues(w.labels(result)...).Inc()
	if result != Failure {
		w.m.Metrics.ProbesDuration.WithLabelValues(w.durationLabels()...).Observe(time.Since(begin).Seconds())
	}
	if w.last != result {
		w.last, w.times = result, 0
	}
	w.times++
	if w.times < map[Result]int32{Failure: w.spec.FailureThreshold, Success: w.spec.SuccessThreshold}[result] {
		return
	}
	w.set(ctx, result)
	if w.key.kind == liveness && result == Failure || w.key.kind == startup {
		// The container will be restarted, or has started.
		w.onHold, w.times = true, 0
	}
}

// labels returns the labels of prober_probe_total.
func (w *worker) labels(r Result) []string {
	result := map[Result]string{Success: "successful", Failure: "failed", Unknown: "unknown"}[r]
	return []string{w.key.kind.String(), result, w.container.Name, w.pod.Name, w.pod.Namespace, string(w.key.uid)}
}

// durationLabels returns the labels of prober_probe_duration_seconds.
func (w *worker) durationLabels() []string {
	return []string{w.key.kind.String(), w.container.Name, w.pod.Name, w.pod.Namespace}
}

// A failure is the result of a probe that was run, with the reason. Any other error means that it could not be run.
type failure string

func (f failure) Error() string { return string(f) }

const (
	mostTries  = 3                 // of a probe that cannot be run (maxProbeRetries upstream); a failure is not retried
	mostOutput = 10 << 10          // bytes of a container's answer
	userAgent  = "kube-probe/1.36" // servers match its beginning
)

// try runs the probe, again if it cannot be run, and records an event for everything but success. An error means that
// there is no result.
func (w *worker) try(ctx context.Context, st *v1.PodStatus) (Result, error) {
	var err error
	var failed failure
	for range mostTries {
		if err = w.once(ctx, st); err == nil || errors.As(err, &failed) || ctx.Err() != nil {
			break
		}
	}
	log := w.m.Log.V(1).WithValues("probeType", w.key.kind, "pod", klog.KObj(w.pod), "podUID", w.key.uid,
		"containerName", w.container.Name)
	object := pod.Reference(w.pod, w.container)
	switch {
	case ctx.Err() != nil:
		return Unknown, ctx.Err() // the end of the syncLoop, not a result
	case errors.As(err, &failed):
		log.Info("Probe failed", "probeResult", "failure", "output", string(failed))
		w.m.Recorder.Eventf(object, v1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", w.key.kind, failed)
		return Failure, nil
	case err != nil:
		log.Info("Probe errored", "probeResult", "unknown", "err", err)
		w.m.Recorder.Eventf(object, v1.EventTypeWarning, "Unhealthy",
			"%s probe errored and resulted in unknown state: %s", w.key.kind, err)
		return Unknown, err
	}
	return Success, nil
}

// once runs the probe one time.
func (w *worker) once(ctx context.Context, st *v1.PodStatus) error {
	timeout := time.Duration(w.spec.TimeoutSeconds) * time.Second
	switch p := w.spec; {
	case p.Exec != nil:
		return w.exec(ctx, p.Exec.Command, timeout)
	case p.HTTPGet != nil:
		req, err := request(ctx, p.HTTPGet, w.container, st.PodIP)
		if err != nil {
			return err
		}
		return get(req, timeout)
	case p.TCPSocket != nil:
		port, err := portOf(p.TCPSocket.Port, w.container)
		if err != nil {
			return err
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(cmp.Or(p.TCPSocket.Host, st.PodIP), port), timeout)
		if err != nil {
			return failure(err.Error())
		}
		return conn.Close()
	case p.GRPC != nil:
		err := w.m.GRPC(ctx, net.JoinHostPort(st.PodIP, strconv.Itoa(int(p.GRPC.Port))), *p.GRPC.Service, timeout)
		if err != nil {
			return failure(err.Error())
		}
		return nil
	}
	return fmt.Errorf("missing probe handler for %s:%s", pod.Format(w.pod), w.container.Name)
}

// exec runs a command in the container. It cannot be run only if the runtime cannot run it at all.
func (w *worker) exec(ctx context.Context, command []string, timeout time.Duration) error {
	data, err := w.m.Exec(ctx, w.id, command, timeout)
	var exit exec.ExitError
	switch {
	case errors.As(err, &exit):
		return failure(data[:min(len(data), mostOutput)])
	case remote.IsDeadlineExceeded(err):
		return failure(fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout))
	}
	return err
}

// request makes the request of an HTTP probe of a container. host is used if the action has none.
func request(ctx context.Context, get *v1.HTTPGetAction, c *v1.Container, host string) (*http.Request, error) {
	port, err := portOf(get.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		return nil, err
	}
	u.Scheme = cmp.Or(strings.ToLower(string(get.Scheme)), "http")
	u.Host = net.JoinHostPort(cmp.Or(get.Host, host), port)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "*/*")
	for _, h := range get.HTTPHeaders {
		req.Header.Set(h.Name, h.Value)
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

// portOf resolves a port: a number, a number as a string, or the name of one of the container's ports.
func portOf(port intstr.IntOrString, c *v1.Container) (string, error) {
	n := port.IntValue()
	for _, p := range c.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			n = int(p.ContainerPort)
		}
	}
	if n <= 0 || n > 65535 {
		return "", fmt.Errorf("invalid port number: %v", port.String())
	}
	return strconv.Itoa(n), nil
}

// get sends a request on a new connection, without verifying the server's certificate. An answer from 200 to 399 is a
// success; no answer is a failure like a bad one. Redirects are followed.
func get(req *http.Request, timeout time.Duration) error {
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}}
	resp, err := client.Do(req)
	if err != nil {
		return failure(err.Error())
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		// The body is left out: it may contain secrets.
		return failure(fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode))
	}
	return nil
}
