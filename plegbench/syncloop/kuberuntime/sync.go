package kuberuntime

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/exec"
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A podSync is one SyncPod under way.
type podSync struct {
	*Manager
	pod     *v1.Pod
	status  *container.PodStatus
	actions PodActions
	result  Result

	sandboxID string
	config    *runtimeapi.PodSandboxConfig
	ip        string // of the pod; empty on the host's network
}

// SyncPod brings the pod from the given status closer to its spec. It does not wait for containers to end or to become
// ready: the next SyncPod continues.
func (m *Manager) SyncPod(ctx context.Context, pod *v1.Pod, status *container.PodStatus) Result {
	s := &podSync{Manager: m, pod: pod, status: status}
	if len(status.IPs) > 0 {
		s.ip = status.IPs[0]
	}
	s.actions = computePodActions(actionInput{pod: pod, status: status, liveness: m.Liveness, startup: m.Startup})
	if s.actions.Why != "" {
		m.Log.V(2).Info(s.actions.Why, "pod", klog.KObj(pod))
	}
	m.Log.V(3).Info("computePodActions got for pod", "podActions", s.actions, "pod", klog.KObj(pod))
	if s.actions.CreateSandbox && s.actions.SandboxID != "" {
		m.Recorder.Event(pod, v1.EventTypeNormal, "SandboxChanged",
			"Pod sandbox changed, it will be killed and re-created.")
	}
	if s.actions.KillPod {
		s.result = s.KillPod(ctx, s.pod, s.status.RunningPod(s.RuntimeName), nil)
		if s.result.Err != nil {
			s.Log.Error(s.result.Err, "killPodWithSyncResult failed")
			return s.result
		}
	}
	for _, k := range s.actions.ContainersToKill {
		err := s.killContainer(ctx, s.pod, k, nil, 0)
		s.result.killed(k.Name, err)
		if err != nil {
			s.Log.Error(err, "killContainer for pod failed",
				"containerName", k.Name, "containerID", loggedID(k.ID), "pod", klog.KObj(s.pod))
			return s.result.finish()
		}
	}
	s.sandboxID = s.actions.SandboxID
	s.config = s.sandboxConfig(s.pod, s.actions.Attempt)
	if s.actions.CreateSandbox {
		defer s.starts.acquire()()
		s.purgeInitContainers(ctx)
		if !s.createPodSandbox(ctx) {
			return s.result.finish()
		}
	}
	s.startAll(ctx)
	return s.result.finish()
}

// purgeInitContainers removes the instances of init containers in earlier sandboxes: they would count as done.
func (s *podSync) purgeInitContainers(ctx context.Context) {
	for _, st := range s.status.ContainerStatuses {
		if pod.Container(s.pod.Spec.InitContainers, st.Name) == nil {
			continue
		}
		if err := s.removeContainer(ctx, st.ID.ID); err != nil {
			s.Log.Error(err, "Failed to remove pod init container", "containerName", st.Name, "pod", klog.KObj(s.pod))
		}
	}
}

// createPodSandbox creates the sandbox and reads its address. It reports success.
func (s *podSync) createPodSandbox(ctx context.Context) bool {
	key, name := klog.KObj(s.pod), describe(s.pod)
	handler := ptr.Deref(s.pod.Spec.RuntimeClassName, "") // by convention the handler has the class's name
	s.Metrics.StartedPods.Inc()
	var status *runtimeapi.PodSandboxStatus
	start := time.Now()
	var err error
	s.sandboxID, err = s.CRI.RunPodSandbox(ctx, s.config, handler)
	s.Metrics.RunPodSandboxDuration.WithLabelValues(handler).Observe(time.Since(start).Seconds())
	if err == nil {
		status, err = s.CRI.PodSandboxStatus(ctx, s.sandboxID)
	}
	if err != nil {
		s.Metrics.StartedPodsErrors.Inc()
		s.Metrics.RunPodSandboxErrors.WithLabelValues(handler).Inc()
		s.Log.Error(err, "Failed to create sandbox for pod", "pod", key)
		s.result.add(ActionCreateSandbox, name, ErrCreatePodSandbox,
			fmt.Sprintf("Failed to create sandbox for pod %q: %v", name, err))
		s.Log.Error(err, "CreatePodSandbox for pod failed", "pod", key)
		s.Recorder.Eventf(s.pod, v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return false
	}
	s.result.add(ActionCreateSandbox, name, nil, "")
	s.ip = status.GetNetwork().GetIp()
	return true
}

// startAll starts init and regular containers, in this order. If one fails the others are started all the same, except
// after an init container.
func (s *podSync) startAll(ctx context.Context) {
	for _, i := range s.actions.InitContainersToStart {
		c := &s.pod.Spec.InitContainers[i]
		if !s.start(ctx, "init container", c) && !pod.IsSidecar(c) {
			return
		}
	}
	for _, i := range s.actions.ContainersToStart {
		s.start(ctx, "container", &s.pod.Spec.Containers[i])
	}
}

// start starts one container, unless it has to wait after a crash, and records the result.
func (s *podSync) start(ctx context.Context, kind string, c *v1.Container) bool {
	if message := s.doBackOff(c); message != "" {
		s.result.add(ActionStartContainer, c.Name, ErrCrashLoopBackOff, message)
		return false
	}
	label := strings.ReplaceAll(kind, " ", "_")
	s.Metrics.StartedContainers.WithLabelValues(label).Inc()
	message, reason := s.startContainer(ctx, c)
	s.result.add(ActionStartContainer, c.Name, reason, message)
	if reason == nil {
		return true
	}
	s.Metrics.StartedContainersErrors.WithLabelValues(label, reason.Error()).Inc()
	if reason.Error() != "ImagePullBackOff" { // waiting is no error
		err := fmt.Errorf("%s %s start failed in pod %s: %w: %s", kind, c.Name, describe(s.pod), reason, message)
		s.Log.WithName("UnhandledError").Error(err, "Unhandled Error")
	}
	return false
}

// doBackOff returns a message if a container that has ended has to wait, or "". The wait counts from its newest end.
func (s *podSync) doBackOff(c *v1.Container) (message string) {
	i := slices.IndexFunc(s.status.ContainerStatuses, func(st *container.Status) bool {
		return st.Name == c.Name && st.State == container.Exited
	})
	if i < 0 {
		return ""
	}
	ended, key := s.status.ContainerStatuses[i].FinishedAt, backOffKey(s.pod, c)
	if !s.BackOff.IsInBackOffSince(key, ended) {
		s.BackOff.Next(key, ended)
		return ""
	}
	wait := s.BackOff.Get(key)
	if until := ended.Add(wait); s.result.Until.IsZero() || until.Before(s.result.Until) {
		s.result.Until = until
	}
	s.event(s.pod, c, v1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, describe(s.pod)))
	message = fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait, c.Name, describe(s.pod))
	s.Log.V(3).Info("Back-off restarting failed container", "err", message)
	return message
}

// backOffKey identifies a container. With another image it starts over.
func backOffKey(pod *v1.Pod, c *v1.Container) string {
	return string(pod.UID) + "/" + c.Name + "/" + c.Image
}

// startContainer pulls, creates and starts a container and runs its postStart hook. reason is nil, or the waiting
// reason of the container's status; message explains it.
func (s *podSync) startContainer(ctx context.Context, c *v1.Container) (message string, reason error) {
	failed := func(reason error, message string) (string, error) {
		s.event(s.pod, c, v1.EventTypeWarning, "Failed", "Error: "+message)
		return message, reason
	}
	ref, message, reason := s.EnsureImage(ctx, s.pod, c, s.config)
	if reason != nil {
		_, reason = failed(reason, reason.Error())
		return message, reason
	}
	config, err := s.containerConfig(ctx, c, ref)
	if err != nil {
		return failed(ErrCreateContainerConfig, err.Error())
	}
	id, err := s.CRI.CreateContainer(ctx, s.sandboxID, config, s.config)
	if err != nil {
		if n := len(config.GetMounts()); c.TerminationMessagePath != "" {
			_ = os.Remove(config.GetMounts()[n-1].GetHostPath()) // the next attempt makes another
		}
		return failed(ErrCreateContainer, plain(err))
	}
	s.event(s.pod, c, v1.EventTypeNormal, "Created", "Container created")
	if err := s.CRI.StartContainer(ctx, id); err != nil {
		return failed(ErrRunContainer, plain(err))
	}
	s.event(s.pod, c, v1.EventTypeNormal, "Started", "Container started")
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return "", nil
	}
	if err = s.runHook(ctx, s.pod, c, s.id(id), c.Lifecycle.PostStart); err == nil {
		return "", nil
	}
	s.Log.Error(err, "Failed to execute PostStartHook", about(s.pod, c.Name, s.id(id))...)
	// The error stays out of the event: it may contain secrets.
	s.event(s.pod, c, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	k := Kill{ID: s.id(id), Name: c.Name, Message: "FailedPostStartHook"}
	if err := s.killContainer(ctx, s.pod, k, nil, 0); err != nil {
		s.Log.Error(err, "Failed to kill container", about(s.pod, c.Name, s.id(id))...)
	}
	return err.Error(), ErrPostStartHook
}

// containerConfig is the argument of CreateContainer.
func (s *podSync) containerConfig(
	ctx context.Context, c *v1.Container, ref string,
) (*runtimeapi.ContainerConfig, error) {
	env, err := s.environment(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.verifyNonRoot(ctx, c, ref); err != nil {
		return nil, err
	}
	mounts, err := s.containerMounts(c, env)
	if err != nil {
		return nil, err
	}
	logDir := filepath.Join(s.config.GetLogDirectory(), c.Name)
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, fmt.Errorf("create container log directory for container %s failed: %w", c.Name, err)
	}
	var envs []*runtimeapi.KeyValue
	for _, name := range slices.Sorted(maps.Keys(env)) {
		envs = append(envs, &runtimeapi.KeyValue{Key: name, Value: []byte(env[name])})
	}
	restarts, labels := restartsByLogs(logDir), s.identity(s.pod)
	labels[container.ContainerNameLabel] = c.Name
	if old := s.status.Find(c.Name); old != nil {
		restarts = old.RestartCount + 1
	}
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(restarts)},
		Image:    &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: c.Image},
		Command:  pod.ExpandAll(c.Command, env), Args: pod.ExpandAll(c.Args, env), WorkingDir: c.WorkingDir,
		Envs: envs, Mounts: mounts, Labels: labels, Annotations: containerAnnotations(c, restarts),
		LogPath: filepath.Join(c.Name, strconv.Itoa(restarts)+".log"),
		Stdin:   c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: s.linuxResources(s.pod, c), SecurityContext: containerSecurity(s.pod, c),
		},
	}, nil
}

// restartsByLogs returns the number after that of a container's newest log, which may be rotated, so that a runtime
// that has lost the container does not write into that log again (calcRestartCountByLogDir upstream).
func restartsByLogs(dir string) (next int) {
	logs, _ := os.ReadDir(dir) // which was just made
	for _, log := range logs {
		number, _, _ := strings.Cut(log.Name(), ".log")
		if n, err := strconv.Atoi(number); err == nil {
			next = max(next, n+1)
		}
	}
	return next
}

// event records an event about a container.
func (m *Manager) event(p *v1.Pod, c *v1.Container, kind, reason, message string) {
	m.Recorder.Event(pod.Reference(p, c), kind, reason, message)
}

// startsPerCPU bounds the new pods that start at a time. Starting takes CPU and disk: more at a time make each of them
// slower and all of them later (docs/bench). After startCounts the slot is freed, since the start is then blocked on
// something else.
const (
	startsPerCPU = 4
	startCounts  = 3 * time.Second
)

// A startLimiter has a slot for each start at a time. Without capacity it limits nothing. The kubelet has none.
type startLimiter chan struct{}

// acquire waits for a slot and returns a function that frees it.
func (l startLimiter) acquire() (free func()) {
	if cap(l) == 0 {
		return func() {}
	}
	l <- struct{}{}
	free = sync.OnceFunc(func() { <-l })
	time.AfterFunc(startCounts, free)
	return free
}

// Exec runs a command in a container and returns its output, standard output first. The error is an exec.ExitError
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

// runHook runs a lifecycle hook to its end.
func (m *Manager) runHook(
	ctx context.Context, p *v1.Pod, c *v1.Container, id container.ID, h *v1.LifecycleHandler,
) (err error) {
	switch {
	case h.Exec != nil:
		var out []byte
		if out, err = m.Exec(ctx, id, h.Exec.Command, 0); err != nil {
			err = fmt.Errorf("%w, message: %q", err, out)
		}
	case h.Sleep != nil:
		select {
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
			err = ctx.Err()
		}
	default: // HTTP; a tcpSocket hook was never supported upstream either
		err = fmt.Errorf("invalid handler: %v", h)
	}
	if err != nil {
		err = fmt.Errorf("lifecycle hook for Container %q in Pod %q failed - error: %w", c.Name, describe(p), err)
	}
	return err
}

// leastGrace, in seconds, is the least grace period of every container.
const leastGrace = 2

// KillPod stops all of a pod's running containers: the regular ones at the same time, then the sidecars, the last
// first. Then it stops the sandboxes, even if a container could not be stopped. grace, in seconds, overrides the pod's
// own. p is nil if only the runtime has the pod; its preStop hooks do not run then.
func (m *Manager) KillPod(ctx context.Context, p *v1.Pod, running *container.Pod, grace *int64) Result {
	p = cmp.Or(p, &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: running.UID, Name: running.Name, Namespace: running.Namespace,
	}})
	byOrder := map[int][]*container.Container{}
	for _, c := range running.Containers {
		order := terminationOrder(p, c.Name)
		byOrder[order] = append(byOrder[order], c)
	}
	var r Result
	start := time.Now()
	for _, order := range slices.Sorted(maps.Keys(byOrder)) {
		group := byOrder[order]
		var wg sync.WaitGroup
		waited, errs := int64(time.Since(start)/time.Second), make([]error, len(group))
		for i, c := range group {
			wg.Go(func() { errs[i] = m.killContainer(ctx, p, Kill{ID: c.ID, Name: c.Name}, grace, waited) })
		}
		wg.Wait()
		for i, c := range group {
			r.killed(c.Name, errs[i])
			if errs[i] != nil {
				m.Log.Error(errs[i], "Kill container failed", "pod", klog.KObj(p), "podUID", p.UID,
					"containerName", c.Name, "containerID", loggedID(c.ID))
			}
		}
	}
	var reason error
	message := ""
	for _, sb := range running.Sandboxes {
		if err := m.CRI.StopPodSandbox(ctx, sb.ID.ID); err != nil && !remote.IsNotFound(err) {
			reason, message = ErrKillPodSandbox, err.Error()
			m.Log.Error(nil, "Failed to stop sandbox", "podSandboxID", loggedID(sb.ID))
		}
	}
	r.add(ActionKillSandbox, string(running.UID), reason, message)
	return r.finish()
}

// terminationOrder returns a container's place in the end of its pod: 0 for all but sidecars, which end one by one, the
// last first.
func terminationOrder(p *v1.Pod, name string) int {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name && pod.IsSidecar(c) {
			return len(p.Spec.InitContainers) - i
		}
	}
	return 0
}

// killContainer stops one container. The seconds that it waited for other containers, its preStop hook and its own end
// share the grace period: grace, or that of the pod's deletion, of the failed probe, or of the pod.
func (m *Manager) killContainer(ctx context.Context, p *v1.Pod, k Kill, grace *int64, waited int64) error {
	c := cmp.Or(pod.Container(p.Spec.Containers, k.Name), pod.Container(p.Spec.InitContainers, k.Name),
		&v1.Container{Name: k.Name})
	m.event(p, c, v1.EventTypeNormal, "Killing", cmp.Or(k.Message, "Stopping container "+c.Name))
	var probe *int64
	if k.Grace > 0 {
		probe = &k.Grace
	}
	left := *cmp.Or(grace, p.DeletionGracePeriodSeconds, probe, p.Spec.TerminationGracePeriodSeconds,
		new(int64(leastGrace))) - waited
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && left > 0 {
		left -= m.preStop(ctx, p, c, k.ID, left)
	}
	left = max(left, leastGrace)
	line := append(about(p, k.Name, k.ID), "gracePeriod", left)
	m.Log.V(2).Info("Killing container with a grace period", line...)
	err := m.CRI.StopContainer(ctx, k.ID.ID, time.Duration(left)*time.Second)
	if err != nil && !remote.IsNotFound(err) {
		m.Log.Error(err, "Container termination failed with gracePeriod", line...)
		return err
	}
	m.Log.V(3).Info("Container exited normally", about(p, k.Name, k.ID)...)
	return nil
}

// preStop runs a hook, at most for the grace period, and returns the whole seconds that it took. After that the
// container is stopped in any case.
func (m *Manager) preStop(ctx context.Context, pod *v1.Pod, c *v1.Container, id container.ID, grace int64) int64 {
	keys := about(pod, c.Name, id)
	start := time.Now()
	within, cancel := context.WithTimeout(ctx, time.Duration(grace)*time.Second)
	defer cancel()
	err := m.runHook(within, pod, c, id, c.Lifecycle.PreStop)
	switch {
	case err != nil && within.Err() != nil:
		m.Log.V(2).Info("PreStop hook not completed in grace period", append(keys, "gracePeriod", grace)...)
	case err != nil:
		m.Log.Error(err, "PreStop hook failed", keys...)
		// The error stays out of the event: it may contain secrets.
		m.event(pod, c, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	return int64(time.Since(start) / time.Second)
}

// A loggedID prints as {"Type":...,"ID":...}, as some lines of the kubelet's log have an ID.
type loggedID struct{ Type, ID string }

// about are the keys with which most lines about a container begin.
func about(pod *v1.Pod, name string, id container.ID) []any {
	return []any{"pod", klog.KObj(pod), "podUID", pod.UID, "containerName", name, "containerID", id.String()}
}
