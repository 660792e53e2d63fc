package kuberuntime

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A syncing is one SyncPod under way.
type syncing struct {
	*Manager
	pod     *v1.Pod
	status  *container.PodStatus
	secrets []v1.Secret
	actions PodActions
	result  Result

	sandboxID string
	config    *runtimeapi.PodSandboxConfig
	ips       []string
	leave     func() // leaves the gate, which a new pod's sandbox and first container pass together; nil once that is done
}

// SyncPod does what the pod needs now, given what the runtime had at the time of status. It does not wait for
// containers to end or to become ready: the next SyncPod continues. pullSecrets are the pod's.
func (m *Manager) SyncPod(
	ctx context.Context, pod *v1.Pod, status *container.PodStatus, pullSecrets []v1.Secret,
) Result {
	s := &syncing{Manager: m, pod: pod, status: status, secrets: pullSecrets, ips: status.IPs}
	s.actions = computePodActions(actionInput{pod: pod, status: status, liveness: m.Liveness, startup: m.Startup})
	s.logActions()
	s.result.finish(s.run(ctx))
	return s.result
}

func (s *syncing) logActions() {
	pod, a := klog.KObj(s.pod), &s.actions
	if a.Why != "" {
		s.Log.V(2).Info(a.Why, "pod", pod)
	}
	for _, k := range a.ContainersToKill {
		s.Log.V(2).Info("Message for Container of pod", "containerName", k.Name, "containerStatusID", loggedID(k.ID),
			"pod", pod, "containerMessage", k.Message)
	}
	s.Log.V(3).Info("computePodActions got for pod", "podActions", a, "pod", pod)
	if a.CreateSandbox && a.SandboxID != "" {
		s.Recorder.Event(s.pod, v1.EventTypeNormal, "SandboxChanged",
			"Pod sandbox changed, it will be killed and re-created.")
	}
}

// run takes the steps in the kubelet's order. Failures of a step are in the result; the error is of none of the steps.
func (s *syncing) run(ctx context.Context) error {
	if s.actions.KillPod {
		killed := s.KillPod(ctx, s.pod, s.status.RunningPod(s.RuntimeName), nil)
		s.result.Actions = append(s.result.Actions, killed.Actions...)
		if killed.Err != nil {
			s.Log.Error(killed.Err, "killPodWithSyncResult failed")
			return nil
		}
	} else if !s.killUnwanted(ctx) {
		return nil
	}
	s.removeInit(ctx)
	s.sandboxID = s.actions.SandboxID
	s.config = s.sandboxConfig(s.pod, s.actions.Attempt)
	if s.actions.CreateSandbox {
		s.leave = s.starting.enter(ctx)
		defer s.leave()
		if ok, err := s.createSandbox(ctx); !ok {
			return err
		}
	}
	s.startAll(ctx)
	return nil
}

func (s *syncing) killUnwanted(ctx context.Context) bool {
	for _, k := range s.actions.ContainersToKill {
		keys := []any{"containerName", k.Name, "containerID", loggedID(k.ID), "pod", klog.KObj(s.pod)}
		s.Log.V(3).Info("Killing unwanted container for pod", keys...)
		if err := s.killContainer(ctx, s.pod, k, nil, nil); err != nil {
			s.result.add(ActionKillContainer, k.Name, ErrKillContainer, err.Error())
			s.Log.Error(err, "killContainer for pod failed", keys...)
			return false
		}
		s.result.add(ActionKillContainer, k.Name, nil, "")
	}
	return true
}

// removeInit removes dead instances of init containers: all but the newest of each name, and the newest as well if the
// pod starts anew.
func (s *syncing) removeInit(ctx context.Context) {
	seen := map[string]bool{}
	for _, st := range s.status.ContainerStatuses {
		dead := st.State == container.Exited || st.State == container.Unknown
		if pod.Container(s.pod.Spec.InitContainers, st.Name) == nil || !s.actions.CreateSandbox && !dead {
			continue
		}
		if !seen[st.Name] && !s.actions.CreateSandbox {
			seen[st.Name] = true
			continue
		}
		if err := container.Remove(ctx, s.CRI, s.LogDir, st.ID.ID); err != nil {
			s.Log.Error(err, "Failed to remove pod init container", "containerName", st.Name, "pod", klog.KObj(s.pod))
		}
	}
}

// createSandbox creates the sandbox and reads its addresses. It returns whether to go on.
func (s *syncing) createSandbox(ctx context.Context) (bool, error) {
	key, name := klog.KObj(s.pod), describe(s.pod)
	s.Metrics.StartedPods.Inc()
	var id string
	handler := runtimeHandler(s.pod)
	err := makeDir(s.config.GetLogDirectory())
	if err == nil {
		start := time.Now()
		id, err = s.CRI.RunPodSandbox(ctx, s.config, handler)
		s.Metrics.RunPodSandboxDuration.WithLabelValues(handler).Observe(time.Since(start).Seconds())
	}
	if err != nil && s.TerminationRequested(s.pod.UID) {
		// Whatever removes a pod's volumes or network during the creation makes the creation fail, too.
		s.Log.V(4).Info("Pod was deleted and sandbox failed to be created", "pod", key, "podUID", s.pod.UID)
		s.result.add(ActionCreateSandbox, name, nil, "")
		return false, nil
	}
	if err != nil {
		s.Metrics.StartedPodsErrors.Inc()
		s.Metrics.RunPodSandboxErrors.WithLabelValues(handler).Inc()
		s.Log.Error(err, "Failed to create sandbox for pod", "pod", key)
		s.result.add(ActionCreateSandbox, name, ErrCreatePodSandbox,
			fmt.Sprintf("Failed to create sandbox for pod %q: %v", name, err))
		s.Log.Error(err, "CreatePodSandbox for pod failed", "pod", key)
		s.Recorder.Eventf(s.pod, v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return false, nil
	}
	s.sandboxID = id
	s.result.add(ActionCreateSandbox, name, nil, "")
	s.Log.V(4).Info("Created PodSandbox for pod", "podSandboxID", id, "pod", key)
	status, err := s.CRI.PodSandboxStatus(ctx, id)
	if err != nil {
		s.Recorder.Eventf(s.pod, v1.EventTypeWarning, "FailedPodSandBoxStatus", "Unable to get pod sandbox status: %v", err)
		s.Log.Error(err, "Failed to get pod sandbox status; Skipping pod", "pod", key)
		return false, err
	}
	if !s.pod.Spec.HostNetwork {
		s.ips = sandboxIPs(status)
	}
	s.SandboxReady(s.pod)
	return true, nil
}

// startAll starts ephemeral, init and regular containers, in this order. If one fails the others are started all the
// same, except after an init container.
func (s *syncing) startAll(ctx context.Context) {
	spec := &s.pod.Spec
	for _, i := range s.actions.EphemeralToStart {
		c := v1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		s.start(ctx, "ephemeral container", &c)
	}
	for _, i := range s.actions.InitToStart {
		c := &spec.InitContainers[i]
		if !s.start(ctx, "init container", c) && !pod.IsSidecar(c) {
			s.Log.V(4).Info("Failed to initialize the pod, as the init container failed to start, aborting",
				"initContainerName", c.Name, "pod", klog.KObj(s.pod))
			return
		}
	}
	for _, i := range s.actions.ContainersToStart {
		s.start(ctx, "container", &spec.Containers[i])
	}
}

// start starts one container, unless it has to wait after a crash, and records the result.
func (s *syncing) start(ctx context.Context, kind string, c *v1.Container) bool {
	if message := s.backsOff(c); message != "" {
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
	if reason.Error() == "ImagePullBackOff" { // waiting is no error
		s.Log.V(3).Info("Container start failed in pod", "containerType", kind, "container", c.Name, "pod", klog.KObj(s.pod),
			"containerMessage", message, "err", reason)
		return false
	}
	err := fmt.Errorf("%s %s start failed in pod %s: %w: %s", kind, c.Name, describe(s.pod), reason, message)
	s.Log.WithName("UnhandledError").Error(err, "Unhandled Error")
	return false
}

// backsOff returns why a container that has ended has to wait, or "". The wait counts from its newest end.
func (s *syncing) backsOff(c *v1.Container) (message string) {
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
	s.event(s.pod, c, "", v1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Name, describe(s.pod)))
	message = fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait, c.Name, describe(s.pod))
	s.Log.V(3).Info("Back-off restarting failed container", "err", message)
	return message
}

// backOffKey identifies a container. With another image or other resources a container starts over.
func backOffKey(pod *v1.Pod, c *v1.Container) string {
	h := fnv.New64a()
	fmt.Fprint(h, pod.Name, "/", pod.Namespace, "/", pod.UID, "/", c.Name, "/", c.Image, "/", c.Resources.String())
	return strconv.FormatUint(h.Sum64(), 16)
}
