package kuberuntime

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A syncing is one SyncPod under way.
type syncing struct {
	m       *Manager
	pod     *v1.Pod
	status  *container.PodStatus
	secrets []v1.Secret
	backOff *Backoff
	actions PodActions
	result  Result

	sandboxID string
	config    *runtimeapi.PodSandboxConfig
	ips       []string
	leave     func() // the gate, which a new pod's sandbox and first container pass as one; nil when that is done
}

// ip is the pod's primary address, empty without one.
func (s *syncing) ip() string {
	if len(s.ips) == 0 {
		return ""
	}
	return s.ips[0]
}

// SyncPod does what the pod needs now, given what the runtime had at the time of status. It does not wait for containers to
// end or to become ready: what follows is done by the next SyncPod. pullSecrets are the pod's own.
func (m *Manager) SyncPod(
	ctx context.Context, pod *v1.Pod, status *container.PodStatus, pullSecrets []v1.Secret, backOff *Backoff,
) Result {
	s := &syncing{m: m, pod: pod, status: status, secrets: pullSecrets, backOff: backOff, ips: status.IPs}
	s.actions = computePodActions(actionInput{pod: pod, status: status, liveness: m.Liveness, startup: m.Startup})
	s.say()
	err := s.run(ctx)
	s.result.finish(err)
	return s.result
}

// say logs what was decided.
func (s *syncing) say() {
	pod, a := klog.KObj(s.pod), &s.actions
	if a.Why != "" {
		s.m.Log.V(2).Info(a.Why, "pod", pod)
	}
	for _, k := range a.ContainersToKill {
		s.m.Log.V(2).Info("Message for Container of pod", "containerName", k.Name, "containerStatusID", loggedID(k.ID),
			"pod", pod, "containerMessage", k.Message)
	}
	s.m.Log.V(3).Info("computePodActions got for pod", "podActions", a, "pod", pod)
	switch {
	case !a.CreateSandbox:
	case a.SandboxID != "":
		s.m.Recorder.Event(s.pod, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	default:
		s.m.Log.V(4).Info("SyncPod received new pod, will create a sandbox for it", "pod", pod)
	}
}

// run takes the steps in the kubelet's order. What fails in a step is in the result; the error is of what no step stands for.
func (s *syncing) run(ctx context.Context) error {
	if s.actions.KillPod {
		if !s.killAll(ctx) {
			return nil
		}
	} else if !s.killUnwanted(ctx) {
		return nil
	}
	s.removeInit(ctx)
	s.sandboxID = s.actions.SandboxID
	if s.actions.CreateSandbox {
		s.leave = s.m.starting.enter(ctx)
		defer s.leave()
		if ok, err := s.createSandbox(ctx); !ok {
			return err
		}
	}
	var err error
	if s.config, err = s.m.sandboxConfig(s.pod, s.actions.Attempt); err != nil {
		s.m.Log.Error(err, "GeneratePodSandboxConfig for pod failed", "pod", klog.KObj(s.pod))
		return fmt.Errorf("GeneratePodSandboxConfig for pod %q failed: %w", describe(s.pod), err)
	}
	s.startAll(ctx)
	return nil
}

// killAll stops the pod.
func (s *syncing) killAll(ctx context.Context) bool {
	line := "Stopping PodSandbox for pod, because all other containers are dead"
	if s.actions.CreateSandbox {
		line = "Stopping PodSandbox for pod, will start new one"
	}
	s.m.Log.V(4).Info(line, "pod", klog.KObj(s.pod))
	killed := s.m.KillPod(ctx, s.pod, s.status.RunningPod(s.m.RuntimeName), nil)
	s.result.Actions = append(s.result.Actions, killed.Actions...)
	if killed.Err != nil {
		s.m.Log.Error(killed.Err, "killPodWithSyncResult failed")
		return false
	}
	return true
}

func (s *syncing) killUnwanted(ctx context.Context) bool {
	for _, k := range s.actions.ContainersToKill {
		keys := []any{"containerName", k.Name, "containerID", loggedID(k.ID), "pod", klog.KObj(s.pod)}
		s.m.Log.V(3).Info("Killing unwanted container for pod", keys...)
		if err := s.m.killContainer(ctx, s.pod, k, nil, nil); err != nil {
			s.result.add(ActionKillContainer, k.Name, ErrKillContainer, err.Error())
			s.m.Log.Error(err, "killContainer for pod failed", keys...)
			return false
		}
		s.result.add(ActionKillContainer, k.Name, nil, "")
	}
	return true
}

// removeInit removes dead instances of init containers, so that the collector has less to do: all but the newest of each
// name, or for a new start the newest as well.
func (s *syncing) removeInit(ctx context.Context) {
	seen := map[string]bool{}
	for _, st := range s.status.ContainerStatuses {
		isInit := slices.ContainsFunc(s.pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == st.Name })
		dead := st.State == container.Exited || st.State == container.Unknown
		if !isInit || !s.actions.CreateSandbox && !dead {
			continue
		}
		if !seen[st.Name] && !s.actions.CreateSandbox {
			seen[st.Name] = true
			continue
		}
		s.m.Log.V(4).Info("Removing init container", "containerName", st.Name, "containerID", st.ID.ID)
		if err := s.m.remove(ctx, st.ID.ID); err != nil && !isNotFound(err) {
			err = fmt.Errorf("failed to remove pod init container %q: %w; Skipping pod %q", st.Name, err, describe(s.pod))
			s.m.Log.WithName("UnhandledError").Error(err, "Unhandled Error")
		}
	}
}

// createSandbox makes the sandbox and learns its addresses. It returns whether to go on.
func (s *syncing) createSandbox(ctx context.Context) (bool, error) {
	m, key := s.m, klog.KObj(s.pod)
	m.Log.V(4).Info("Creating PodSandbox for pod", "pod", key)
	m.Metrics.StartedPods.Inc()
	id, message, err := m.createSandbox(ctx, s.pod, s.actions.Attempt)
	if err != nil && m.TerminationRequested(s.pod.UID) {
		// Whoever takes away a pod's volumes or network while it is made also makes making it fail.
		m.Log.V(4).Info("Pod was deleted and sandbox failed to be created", "pod", key, "podUID", s.pod.UID)
		s.result.add(ActionCreateSandbox, describe(s.pod), nil, "")
		return false, nil
	}
	if err != nil {
		m.Metrics.StartedPodsErrors.Inc()
		s.result.add(ActionCreateSandbox, describe(s.pod), ErrCreatePodSandbox, message)
		m.Log.Error(err, "CreatePodSandbox for pod failed", "pod", key)
		m.Recorder.Eventf(s.pod, v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return false, nil
	}
	s.sandboxID = id
	s.result.add(ActionCreateSandbox, describe(s.pod), nil, "")
	m.Log.V(4).Info("Created PodSandbox for pod", "podSandboxID", id, "pod", key)
	status, err := m.CRI.PodSandboxStatus(ctx, id)
	if err != nil {
		m.Recorder.Eventf(s.pod, v1.EventTypeWarning, "FailedPodSandBoxStatus", "Unable to get pod sandbox status: %v", err)
		m.Log.Error(err, "Failed to get pod sandbox status; Skipping pod", "pod", key)
		return false, err
	}
	if !s.pod.Spec.HostNetwork {
		s.ips = m.sandboxIPs(status)
		m.Log.V(4).Info("Determined the ip for pod after sandbox changed", "IPs", s.ips, "pod", key)
	}
	m.Log.V(4).Info("Pod sandbox and network ready, invoking callback", "pod", key, "podIPs", s.ips)
	m.SandboxReady(s.pod)
	return true, nil
}

// startAll starts ephemeral, init and regular containers, in this order. One that fails does not keep the others from being
// started, but for an init container, without which nothing may follow.
func (s *syncing) startAll(ctx context.Context) {
	spec := &s.pod.Spec
	for _, i := range s.actions.EphemeralToStart {
		e := &spec.EphemeralContainers[i]
		c := v1.Container(e.EphemeralContainerCommon)
		s.start(ctx, starting{container: &c, kind: ephemeralKind(), target: e.TargetContainerName})
	}
	for _, i := range s.actions.InitToStart {
		c := &spec.InitContainers[i]
		switch ok := s.start(ctx, starting{container: c, kind: initKind()}); {
		case ok:
			s.m.Log.V(4).Info("Completed init container for pod", "containerName", c.Name, "pod", klog.KObj(s.pod))
		case pod.IsSidecar(c):
			s.m.Log.V(4).Info("Failed to start the restartable init container for the pod, skipping",
				"initContainerName", c.Name, "pod", klog.KObj(s.pod))
		default:
			s.m.Log.V(4).Info("Failed to initialize the pod, as the init container failed to start, aborting",
				"initContainerName", c.Name, "pod", klog.KObj(s.pod))
			return
		}
	}
	for _, i := range s.actions.ContainersToStart {
		s.start(ctx, starting{container: &spec.Containers[i], kind: regularKind()})
	}
}

// start starts one container, unless it must wait after a crash, and notes how that went.
func (s *syncing) start(ctx context.Context, st starting) bool {
	c := st.container
	if message, reason := s.backsOff(c); reason != nil {
		s.result.add(ActionStartContainer, c.Name, reason, message)
		s.m.Log.V(4).Info("Backing Off restarting container in pod", "containerType", st.kind.name, "container", c.Name,
			"pod", klog.KObj(s.pod))
		return false
	}
	s.m.Metrics.StartedContainers.WithLabelValues(st.kind.metric).Inc()
	s.m.Log.V(4).Info("Creating container in pod", "containerType", st.kind.name, "container", c.Name, "pod", klog.KObj(s.pod))
	message, reason := s.startContainer(ctx, st)
	s.result.add(ActionStartContainer, c.Name, reason, message)
	if reason != nil {
		s.m.Metrics.StartedContainersErrors.WithLabelValues(st.kind.metric, reason.Error()).Inc()
		s.m.startFailed(s.pod, st, reason, message)
	}
	return reason == nil
}

// backsOff decides whether a container that has ended must wait. The wait counts from its newest end.
func (s *syncing) backsOff(c *v1.Container) (message string, reason error) {
	i := slices.IndexFunc(s.status.ContainerStatuses, func(st *container.Status) bool {
		return st.Name == c.Name && st.State == container.Exited
	})
	if i < 0 {
		return "", nil
	}
	s.m.Log.V(3).Info("Checking backoff for container in pod", "containerName", c.Name, "pod", klog.KObj(s.pod))
	ended, key := s.status.ContainerStatuses[i].FinishedAt, backoffKey(s.pod, c)
	wait, ok := s.backOff.Wait(key, ended)
	if !ok {
		s.backOff.Next(key, ended)
		return "", nil
	}
	s.m.event(s.pod, c, "", v1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, describe(s.pod)))
	message = fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait, c.Name, describe(s.pod))
	s.m.Log.V(3).Info("Back-off restarting failed container", "err", message)
	return message, backOffError{ErrCrashLoopBackOff, ended.Add(wait)}
}
