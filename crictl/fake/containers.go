package fake

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer adds a container to a ready sandbox. Its image must be stored.
func (s *service) CreateContainer(
	_ context.Context, req *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	config := req.GetConfig()
	meta, spec := config.GetMetadata(), config.GetImage()
	if meta.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "container metadata lacks a name")
	}
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	sb, err := st.sandboxes.find(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !sb.ready {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", sb.id)
	}
	stored := st.findImage(spec.GetImage())
	if stored == nil {
		return nil, status.Errorf(codes.NotFound, "image %q is not stored; pull it first", spec.GetImage())
	}
	c := &container{
		id: st.nextID("container"), sandbox: sb, name: meta.GetName(), attempt: meta.GetAttempt(),
		image: &runtimeapi.ImageSpec{
			Image:              stored.name(),
			UserSpecifiedImage: cmp.Or(spec.GetUserSpecifiedImage(), spec.GetImage()),
		},
		imageID: stored.id, imageRef: stored.digest,
		labels: config.GetLabels(), annots: config.GetAnnotations(), mounts: config.GetMounts(),
		resources: config.GetLinux().GetResources(),
		state:     runtimeapi.ContainerState_CONTAINER_CREATED,
		created:   time.Now().UnixNano(),
	}
	if sb.logDir != "" && config.GetLogPath() != "" {
		c.logPath = path.Join(sb.logDir, config.GetLogPath())
	}
	st.addContainer(c)
	st.publish(sb, c.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// StartContainer makes a created container run.
func (s *service) StartContainer(
	_ context.Context, req *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	c, err := st.containers.find(req.GetContainerId())
	switch {
	case err != nil:
		return nil, err
	case c.state != runtimeapi.ContainerState_CONTAINER_CREATED:
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is in state %s, not created", c.id, c.state)
	case !c.sandbox.ready:
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", c.sandbox.id)
	}
	// The log stays empty. The folder is the client's; there is none for a scenario's own containers.
	if c.logPath != "" {
		f, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err == nil {
			err = f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, status.Errorf(codes.Unknown, "opening the log of container %s: %v", c.id, err)
		}
	}
	c.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	c.started = time.Now().UnixNano()
	st.publish(c.sandbox, c.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	i := slices.IndexFunc(st.exits, func(e Exit) bool { return c.target().is(e.Object) })
	if i >= 0 {
		time.AfterFunc(time.Duration(st.exits[i].After), func() {
			st.mu.Lock()
			defer st.mu.Unlock()
			st.stopContainer(c, int32(st.exits[i].Code))
		})
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

// StopContainer ends a container at once: as by SIGTERM, or without a grace period as by SIGKILL. One that has ended,
// never ran or is not there is no error.
func (s *service) StopContainer(
	_ context.Context, req *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	code := int32(exitTerminated)
	if req.GetTimeout() == 0 {
		code = exitKilled
	}
	return &runtimeapi.StopContainerResponse{}, end(s.store, &s.store.containers, req.GetContainerId(),
		func(c *container) { s.store.stopContainer(c, code) })
}

// RemoveContainer removes a container, and kills it first if it runs, as CRI requires. A container that does not
// exist is no error.
func (s *service) RemoveContainer(
	_ context.Context, req *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, end(s.store, &s.store.containers, req.GetContainerId(),
		func(c *container) {
			s.store.stopContainer(c, exitKilled)
			s.store.removeContainer(c)
		})
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
		Annotations: c.annots,
		Mounts:      c.mounts,
		LogPath:     c.logPath,
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
func (s *service) ContainerStatus(
	_ context.Context, req *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	c, err := s.store.containers.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

// ExecSync runs nothing: in a running container every command ends with exit code 0 and no output, so exec probes
// succeed.
func (s *service) ExecSync(
	_ context.Context, req *runtimeapi.ExecSyncRequest,
) (*runtimeapi.ExecSyncResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	c, err := s.store.containers.find(req.GetContainerId())
	if err == nil && !c.running() {
		err = status.Errorf(codes.FailedPrecondition, "container %s is in state %s, not running", c.id, c.state)
	}
	return &runtimeapi.ExecSyncResponse{}, err
}
