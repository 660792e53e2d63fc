package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// startContainer pulls, creates and starts a container and runs its postStart hook. reason is nil, or the waiting
// reason of the container's status; message explains it.
func (s *syncing) startContainer(ctx context.Context, c *v1.Container) (message string, reason error) {
	id := ""
	failed := func(reason error, message string) (string, error) {
		s.event(s.pod, c, id, v1.EventTypeWarning, "Failed", "Error: "+message)
		return message, reason
	}
	ref, message, reason := s.Images.EnsureImage(ctx, s.pod, c, s.secrets, s.config)
	if reason != nil {
		s.event(s.pod, c, "", v1.EventTypeWarning, "Failed", "Error: "+plain(reason))
		return message, reason
	}
	config, err := s.containerConfig(ctx, c, ref)
	if err != nil {
		return failed(ErrCreateContainerConfig, plain(err))
	}
	leave := s.leave
	if s.leave = nil; leave == nil {
		leave = s.starting.enter(ctx)
	}
	defer leave()
	if id, err = s.CRI.CreateContainer(ctx, s.sandboxID, config, s.config); err != nil {
		return failed(ErrCreateContainer, plain(err))
	}
	s.event(s.pod, c, id, v1.EventTypeNormal, "Created", "Container created")
	err = s.CRI.StartContainer(ctx, id)
	leave()
	if err != nil {
		return failed(ErrRunContainer, plain(err))
	}
	s.event(s.pod, c, id, v1.EventTypeNormal, "Started", "Container started")
	s.linkLog(filepath.Join(s.config.GetLogDirectory(), config.GetLogPath()), c.Name, id)
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		return s.postStart(ctx, c, s.id(id))
	}
	return "", nil
}

// postStart runs the hook of a container that was just started. A container whose hook fails is killed.
func (s *syncing) postStart(ctx context.Context, c *v1.Container, id container.ID) (message string, reason error) {
	message, err := s.runHook(ctx, s.pod, c, id, c.Lifecycle.PostStart)
	if err == nil {
		return "", nil
	}
	s.Log.Error(err, "Failed to execute PostStartHook", about(s.pod, c.Name, id)...)
	// The message stays out of the event: it may contain secrets.
	s.event(s.pod, c, id.ID, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	k := Kill{ID: id, Name: c.Name, Message: "FailedPostStartHook", Reason: reasonPostStart}
	if err := s.killContainer(ctx, s.pod, k, nil, nil); err != nil {
		s.Log.Error(err, "Failed to kill container", about(s.pod, c.Name, id)...)
	}
	return message, ErrPostStartHook
}

// containerConfig is the argument of CreateContainer.
func (s *syncing) containerConfig(
	ctx context.Context, c *v1.Container, ref string,
) (*runtimeapi.ContainerConfig, error) {
	image, err := s.CRI.ImageStatus(ctx, c.Image)
	if err != nil {
		return nil, err
	}
	security, err := s.containerSecurity(s.pod, c, image)
	if err != nil {
		return nil, err
	}
	env, err := s.environment(ctx, s.pod, c, s.ips)
	if err != nil {
		return nil, err
	}
	mounts, err := s.mounts(s.pod, c, s.ips)
	if err != nil {
		return nil, err
	}
	if err := makeDir(filepath.Join(s.config.GetLogDirectory(), c.Name)); err != nil {
		return nil, fmt.Errorf("create container log directory for container %s failed: %w", c.Name, err)
	}
	restarts := s.restartCount(c)
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(restarts)},
		Image:    &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: c.Image},
		Command:  pod.ExpandAll(c.Command, env), Args: pod.ExpandAll(c.Args, env), WorkingDir: c.WorkingDir,
		Envs: keyValues(env), Mounts: mounts,
		Labels: s.containerLabels(s.pod, c), Annotations: containerAnnotations(s.pod, c, restarts),
		LogPath: filepath.Join(c.Name, strconv.Itoa(restarts)+container.LogSuffix),
		Stdin:   c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{Resources: s.linuxResources(s.pod, c), SecurityContext: security},
	}, nil
}

// restartCount is one more than that of the container's newest instance or, if the runtime lost its state, than that of
// its newest log, so that no log is overwritten.
func (s *syncing) restartCount(c *v1.Container) int {
	if old := s.status.Find(c.Name); old != nil {
		return old.RestartCount + 1
	}
	files, _ := os.ReadDir(filepath.Join(s.config.GetLogDirectory(), c.Name)) // without the folder it is the first
	restarts := 0
	for _, f := range files {
		number, isLog := strings.CutSuffix(f.Name(), container.LogSuffix)
		if n, err := strconv.ParseUint(number, 10, 31); isLog && err == nil {
			restarts = max(restarts, int(n)+1)
		}
	}
	return restarts
}

func makeDir(path string) error { return os.MkdirAll(path, 0o755) }

// linkLog creates the symlink to a container's log by which log collectors find it, if there is a log.
func (s *syncing) linkLog(log, name, id string) {
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return
	}
	link := container.LogLink(s.LogDir, s.pod.Name, s.pod.Namespace, name, id)
	err := makeDir(filepath.Dir(link))
	if err == nil {
		err = os.Symlink(log, link)
	}
	if err != nil {
		s.Log.Error(err, "Failed to create legacy symbolic link", "path", link, "containerID", id, "containerLogPath", log)
	}
}

// event records an event about a container. Its name replaces its id in the message, so that repeated events are equal.
func (m *Manager) event(p *v1.Pod, c *v1.Container, id, kind, reason, message string) {
	if id != "" {
		message = strings.ReplaceAll(message, id, c.Name)
	}
	m.Recorder.Event(pod.Reference(p, c), kind, reason, message)
}

// startsPerCPU bounds how many pods and further containers start at a time; startCounts is how long a start counts.
// Starting takes CPU and disk: more at a time make each of them slower and all of them later (docs/bench). A start that
// takes longer waits for something else, and must not delay others.
const (
	startsPerCPU = 4
	startCounts  = 3 * time.Second
)

// A gate limits how many starts work at a time. The kubelet has none.
type gate chan struct{}

func newGate() gate { return make(gate, startsPerCPU*runtime.GOMAXPROCS(0)) }

// enter waits for a place, or for the end of ctx, and returns a function that leaves it. After startCounts the place is
// free again in any case.
func (g gate) enter(ctx context.Context) (leave func()) {
	select {
	case g <- struct{}{}:
	case <-ctx.Done():
		return func() {} // the call that follows returns the error
	}
	once := sync.OnceFunc(func() { <-g })
	timer := time.AfterFunc(startCounts, once)
	return func() {
		timer.Stop()
		once()
	}
}
