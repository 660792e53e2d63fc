package kuberuntime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// signalPrefix begins the names of signals in CRI since Kubernetes 1.37, but not in a pod.
const signalPrefix = "SIGNAL_"

// A starting is a container that SyncPod starts.
type starting struct {
	container *v1.Container
	kind      containerKind
	target    string // name of the container whose processes an ephemeral one sees, or empty
}

// A containerKind has a name for log lines and one for metrics.
type containerKind struct{ name, metric string }

func regularKind() containerKind { return containerKind{"container", "container"} }
func initKind() containerKind    { return containerKind{"init container", "init_container"} }
func ephemeralKind() containerKind {
	return containerKind{"ephemeral container", "ephemeral_container"}
}

// startContainer pulls, creates and starts a container and runs its postStart hook. reason is nil, or the waiting
// reason of the container's status; message explains it.
func (s *syncing) startContainer(ctx context.Context, st starting) (message string, reason error) {
	c := st.container
	ref, reason, message := s.m.Images.EnsureImage(ctx, s.pod, c, s.secrets, s.config)
	if reason != nil {
		s.m.event(s.pod, c, "", v1.EventTypeWarning, "Failed", "Error: "+plain(reason))
		return message, reason
	}
	config, err := s.containerConfig(ctx, st, ref)
	if err != nil {
		s.m.event(s.pod, c, "", v1.EventTypeWarning, "Failed", "Error: "+plain(err))
		return plain(err), ErrCreateContainerConfig
	}
	leave := s.leave
	if s.leave = nil; leave == nil {
		leave = s.m.starting.enter(ctx)
	}
	defer leave()
	id, err := s.m.CRI.CreateContainer(ctx, s.sandboxID, config, s.config)
	if err != nil {
		s.m.event(s.pod, c, id, v1.EventTypeWarning, "Failed", "Error: "+plain(err))
		return plain(err), ErrCreateContainer
	}
	s.m.event(s.pod, c, id, v1.EventTypeNormal, "Created", "Container created")
	err = s.m.CRI.StartContainer(ctx, id)
	leave()
	if err != nil {
		s.m.event(s.pod, c, id, v1.EventTypeWarning, "Failed", "Error: "+plain(err))
		return plain(err), ErrRunContainer
	}
	s.m.event(s.pod, c, id, v1.EventTypeNormal, "Started", "Container started")
	s.m.linkLog(filepath.Join(s.config.GetLogDirectory(), config.GetLogPath()),
		filepath.Join(s.m.links(), container.LogLink(s.pod.Name, s.pod.Namespace, c.Name, id)), id)
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		return s.postStart(ctx, c, s.m.id(id))
	}
	return "", nil
}

// postStart runs the hook of a container that was just started. A container whose hook fails is killed.
func (s *syncing) postStart(ctx context.Context, c *v1.Container, id container.ID) (message string, reason error) {
	message, err := s.m.runHook(ctx, s.pod, c, id, c.Lifecycle.PostStart)
	if err == nil {
		return "", nil
	}
	s.m.Log.Error(err, "Failed to execute PostStartHook", about(s.pod, c.Name, id)...)
	// The message stays out of the event: it may hold secrets.
	s.m.event(s.pod, c, id.ID, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	k := Kill{ID: id, Name: c.Name, Message: "FailedPostStartHook", Reason: reasonPostStart}
	if err := s.m.killContainer(ctx, s.pod, k, nil, nil); err != nil {
		s.m.Log.Error(err, "Failed to kill container", about(s.pod, c.Name, id)...)
	}
	return message, ErrPostStartHook
}

// containerConfig is what CreateContainer gets.
func (s *syncing) containerConfig(ctx context.Context, st starting, ref string) (*runtimeapi.ContainerConfig, error) {
	c := st.container
	restarts := s.restartCount(c)
	opts, err := s.m.Options.RunOptions(ctx, s.pod, c, s.ip(), s.ips)
	if err != nil {
		return nil, err
	}
	image, err := s.m.CRI.ImageStatus(ctx, c.Image)
	if err != nil {
		return nil, err
	}
	user := userOf(image)
	if err := checkNonRoot(s.pod, c, user); err != nil {
		return nil, err
	}
	security, err := s.m.containerSecurity(s.pod, c, user)
	if err != nil {
		return nil, err
	}
	if err := s.joinTarget(security, st.target); err != nil {
		return nil, err
	}
	annotations, err := containerAnnotations(s.pod, c, restarts, opts.Annotations)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(s.config.GetLogDirectory(), c.Name), 0o755); err != nil {
		return nil, fmt.Errorf("create container log directory for container %s failed: %w", c.Name, err)
	}
	env := map[string]string{}
	for _, kv := range opts.Env {
		env[kv.GetKey()] = string(kv.GetValue())
	}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(restarts)},
		Image:    &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: c.Image},
		Command:  pod.ExpandAll(c.Command, env), Args: pod.ExpandAll(c.Args, env), WorkingDir: c.WorkingDir,
		Envs: opts.Env, Mounts: opts.Mounts,
		Labels: containerLabels(s.pod, c, s.m.NodeName), Annotations: annotations,
		LogPath: logPath(c.Name, restarts), Stdin: c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{Resources: s.m.linuxResources(s.pod, c), SecurityContext: security},
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		config.StopSignal = runtimeapi.Signal(runtimeapi.Signal_value[signalPrefix+string(*c.Lifecycle.StopSignal)])
	}
	return config, nil
}

// joinTarget puts an ephemeral container into the process namespace of another one, if it names one and the pod's containers
// do not share a namespace anyway.
func (s *syncing) joinTarget(security *runtimeapi.LinuxContainerSecurityContext, name string) error {
	if name == "" {
		return nil
	}
	target := s.status.Find(name)
	if target == nil {
		return fmt.Errorf("unable to find target container %v", name)
	}
	if o := security.GetNamespaceOptions(); o.GetPid() == runtimeapi.NamespaceMode_CONTAINER {
		o.Pid, o.TargetId = runtimeapi.NamespaceMode_TARGET, target.ID.ID
	}
	return nil
}

// restartCount is one more than that of the container's newest instance.
func (s *syncing) restartCount(c *v1.Container) int {
	if old := s.status.Find(c.Name); old != nil {
		return old.RestartCount + 1
	}
	dir := filepath.Join(s.config.GetLogDirectory(), c.Name)
	n, err := restartsByLogs(dir)
	if err != nil {
		s.m.Log.Info("Cannot calculate restartCount from the log directory", "logDir", dir, "err", err)
		return 0
	}
	return n
}

// event records an event about a container. A container's id in the text would make each event unlike any other, so that
// its name stands for it.
func (m *Manager) event(p *v1.Pod, c *v1.Container, id, kind, reason, message string) {
	if id != "" {
		message = strings.ReplaceAll(message, id, c.Name)
	}
	m.Recorder.Event(pod.Reference(p, c), kind, reason, message)
}

// startFailed logs that a container was not started. Waiting for an image is not worth an error each time.
func (m *Manager) startFailed(pod *v1.Pod, st starting, reason error, message string) {
	if reason.Error() == imagePullBackOff {
		m.Log.V(3).Info("Container start failed in pod", "containerType", st.kind.name, "container", st.container.Name,
			"pod", klog.KObj(pod), "containerMessage", message, "err", reason)
		return
	}
	err := fmt.Errorf("%s %s start failed in pod %s: %w: %s", st.kind.name, st.container.Name, describe(pod), reason, message)
	m.Log.WithName("UnhandledError").Error(err, "Unhandled Error")
}
