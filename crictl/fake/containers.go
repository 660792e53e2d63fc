package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer adds a container to a ready sandbox. Its image must be stored.
func (r *runtimeService) CreateContainer(
	_ context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	meta := req.GetConfig().GetMetadata()
	if meta.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "container metadata lacks a name")
	}
	st := r.store
	st.mu.Lock()
	defer st.mu.Unlock()
	sb, err := st.sandboxes.find(req.GetPodSandboxId())
	if err != nil {
		return nil, notFoundOr(err, "pod sandbox")
	}
	if !sb.ready {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", sb.id)
	}
	for _, other := range sb.containers {
		if other.name == meta.GetName() && other.attempt == meta.GetAttempt() {
			return nil, status.Errorf(codes.AlreadyExists, "attempt %d of %q is container %s", other.attempt, other.name,
				other.id)
		}
	}
	sh, err := st.shapeOf(req.GetConfig(), sb)
	if err != nil {
		return nil, err
	}
	c := &container{
		shape:   sh,
		id:      st.nextID("container"),
		sandbox: sb,
		attempt: meta.GetAttempt(),
		state:   runtimeapi.ContainerState_CONTAINER_CREATED,
		created: time.Now().UnixNano(),
	}
	st.addContainer(c)
	st.publish(sb, c.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// shapeOf makes the shape of a container that is made by RPC. The caller holds mu.
func (st *store) shapeOf(config *runtimeapi.ContainerConfig, sb *sandbox) (*shape, error) {
	spec := config.GetImage()
	found := st.images.find(spec.GetImage())
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "image %q is not stored; pull it first", spec.GetImage())
	}
	given := or(spec.GetUserSpecifiedImage(), spec.GetImage())
	sh := &shape{
		name:      config.GetMetadata().GetName(),
		image:     &runtimeapi.ImageSpec{Image: found.name(), UserSpecifiedImage: given},
		imageID:   found.id,
		imageRef:  found.ref(),
		labels:    config.GetLabels(),
		annots:    config.GetAnnotations(),
		mounts:    config.GetMounts(),
		resources: config.GetLinux().GetResources(),
	}
	if sb.logDir != "" && config.GetLogPath() != "" {
		sh.logPath = path.Join(sb.logDir, config.GetLogPath())
	}
	var err error
	if sh.exitAfter, sh.exitWith, err = exitOf(sh.annots, sb.annots); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return sh, nil
}

// exitOf reads when and how a container ends by itself from its annotations, or else its sandbox's.
func exitOf(own, pod map[string]string) (time.Duration, int32, error) {
	read := func(key string) string { return or(own[key], pod[key]) }
	var after time.Duration
	var code int64
	var err error
	if text := read(AnnotationExitAfter); text != "" {
		if after, err = time.ParseDuration(text); err != nil || after <= 0 {
			return 0, 0, fmt.Errorf("annotation %s: %q is not a positive duration such as 3s", AnnotationExitAfter, text)
		}
	}
	if text := read(AnnotationExitCode); text != "" {
		if code, err = strconv.ParseInt(text, 10, 32); err != nil || code < 0 || code > 255 {
			return 0, 0, fmt.Errorf("annotation %s: %q is not a number from 0 to 255", AnnotationExitCode, text)
		}
	}
	return after, int32(code), nil
}

// StartContainer makes a created container run.
func (r *runtimeService) StartContainer(
	_ context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	st := r.store
	st.mu.Lock()
	defer st.mu.Unlock()
	c, err := st.containers.find(req.GetContainerId())
	switch {
	case err != nil:
		return nil, notFoundOr(err, "container")
	case c.state != runtimeapi.ContainerState_CONTAINER_CREATED:
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is in state %s, not created", c.id, c.state)
	case !c.sandbox.ready:
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", c.sandbox.id)
	}
	if err := c.openLog(); err != nil {
		return nil, err
	}
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	c.started = time.Now().UnixNano()
	if c.exitAfter > 0 && !st.closed {
		c.timer = time.AfterFunc(c.exitAfter, func() {
			st.mu.Lock()
			defer st.mu.Unlock()
			if c.running() {
				st.stopContainer(c, c.exitWith)
			}
		})
	}
	st.publish(c.sandbox, c.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.StartContainerResponse{}, nil
}

// StopContainer ends a container at once: as by SIGTERM, or without a grace period as by SIGKILL. One that has ended,
// never ran or is not there is no error.
func (r *runtimeService) StopContainer(
	_ context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	c, err := r.store.containers.find(req.GetContainerId())
	if err != nil && !errors.Is(err, errNotFound) {
		return nil, notFoundOr(err, "stopping a container")
	}
	if err == nil {
		code := int32(exitTerminated)
		if req.GetTimeout() == 0 {
			code = exitKilled
		}
		r.store.stopContainer(c, code)
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer removes a container, and kills it first if it runs, as CRI requires. A container that does not
// exist is no error.
func (r *runtimeService) RemoveContainer(
	_ context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	c, err := r.store.containers.find(req.GetContainerId())
	if err != nil && !errors.Is(err, errNotFound) {
		return nil, notFoundOr(err, "removing a container")
	}
	if err == nil {
		r.store.stopContainer(c, exitKilled)
		r.store.removeContainer(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// status builds the container's status. The caller holds the store's lock.
func (c *container) status() *runtimeapi.ContainerStatus {
	p := &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
		State:       c.state,
		CreatedAt:   c.created,
		StartedAt:   c.started,
		FinishedAt:  c.finished,
		ExitCode:    c.exitCode,
		Image:       c.image,
		ImageRef:    c.imageRef,
		ImageId:     c.imageID,
		Reason:      c.reason,
		Labels:      c.labels,
		Annotations: c.annotations(),
		Mounts:      c.mounts,
		LogPath:     c.log(),
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		p.Reason = "Unknown"
	}
	if c.resources != nil {
		p.Resources = &runtimeapi.ContainerResources{Linux: c.resources}
	}
	return p
}

// ContainerStatus describes one container.
func (r *runtimeService) ContainerStatus(
	_ context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	c, err := r.store.containers.find(req.GetContainerId())
	if err != nil {
		return nil, notFoundOr(err, "container")
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

// ReopenContainerLog makes a running container's log anew where it was taken away.
func (r *runtimeService) ReopenContainerLog(
	_ context.Context, req *runtimeapi.ReopenContainerLogRequest,
) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := r.mustRun(req.GetContainerId())
	if err == nil {
		err = c.openLog()
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// openLog makes the log of a container that was made by RPC, in a folder that its client has made, as runtimes do. It
// stays empty. The logs of a scenario's own containers exist in their statuses only.
func (c *container) openLog() error {
	if c.counted || c.logPath == "" {
		return nil
	}
	f, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return status.Errorf(codes.Unknown, "opening the log of container %s: %v", c.id, err)
	}
	return f.Close()
}

// mustRun finds a container and fails unless it runs.
func (r *runtimeService) mustRun(id string) (*container, error) {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	c, err := r.store.containers.find(id)
	if err != nil {
		return nil, notFoundOr(err, "container")
	}
	if !c.running() {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is in state %s, not running", c.id, c.state)
	}
	return c, nil
}
