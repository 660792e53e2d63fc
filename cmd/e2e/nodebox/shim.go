//go:build e2e

package nodebox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

// lockedAfter is when a status that was not answered counts as locked, also on a busy machine.
const lockedAfter = 5 * time.Second

// FreezeShim stops the shim of a sandbox with SIGSTOP. containerd 1.6 still answers every list and status from memory;
// StartContainer, StopContainer, StopPodSandbox and updates hang.
func (c *Containerd) FreezeShim(ctx context.Context, sandboxID string) error {
	pid, err := c.Shim(sandboxID)
	if err == nil {
		err = unix.Kill(pid, unix.SIGSTOP)
	}
	if err != nil {
		return fmt.Errorf("freezing the shim of sandbox %s: %w", sandboxID, err)
	}
	return awaitStopped(ctx, pid)
}

// ThawShim resumes a frozen shim.
func (c *Containerd) ThawShim(sandboxID string) error {
	pid, err := c.Shim(sandboxID)
	if err == nil {
		err = unix.Kill(pid, unix.SIGCONT)
	}
	return err
}

// Shim returns the process id of a sandbox's shim.
func (c *Containerd) Shim(sandboxID string) (int, error) {
	for pid, args := range processes() {
		if slices.Contains(args, sandboxID) && slices.Contains(args, c.Socket()) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("sandbox %s has no shim", sandboxID)
}

// Wedge causes the real fault behind a ListContainers that hangs while everything else answers: the shim is frozen, and
// an update of the container's resources waits for it with the container's status locked. ContainerStatus of this one
// container hangs, and every list that holds it, until release is called, before Close.
func (c *Containerd) Wedge(ctx context.Context, sandboxID, containerID string) (release func() error, err error) {
	if err := c.FreezeShim(ctx, sandboxID); err != nil {
		return nil, err
	}
	end, err := c.Update(ctx, containerID)
	if err != nil {
		return nil, err
	}
	release = func() error {
		end()
		return c.ThawShim(sandboxID)
	}
	cri, err := remote.Dial(c.Endpoint(), remote.Options{Timeout: lockedAfter})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	defer cri.Close()
	err = poll(ctx, startPatience, "the container's status to be locked", func() (bool, error) {
		_, err := cri.ContainerStatus(ctx, containerID)
		return remote.IsDeadlineExceeded(err), err
	})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// Update requests an update of a container's resources, which may hang, until end is called.
func (c *Containerd) Update(ctx context.Context, containerID string) (end func(), err error) {
	pending, err := crictl.NewConn(c.Endpoint(), nil)
	if err != nil {
		return nil, err
	}
	updating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = runtimeapi.NewRuntimeServiceClient(pending).UpdateContainerResources(updating,
			&runtimeapi.UpdateContainerResourcesRequest{
				ContainerId: containerID, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 512},
			})
	}()
	return func() {
		cancel()
		<-ended
		pending.Close()
	}, nil
}
