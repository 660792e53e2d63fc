package nodebox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
)

// wedgePatience is the deadline of the update that Wedge leaves pending. It is longer than any test.
const wedgePatience = time.Hour

// FreezeShim stops the shim of a sandbox with SIGSTOP. containerd 1.6 answers every list and status all the same, from
// memory; StartContainer, StopContainer, StopPodSandbox and updates hang.
func (c *Containerd) FreezeShim(ctx context.Context, sandboxID string) error {
	pid, err := c.Shim(sandboxID)
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return fmt.Errorf("freezing shim %d: %w", pid, err)
	}
	return awaitState(ctx, pid, 'T')
}

// ThawShim lets a frozen shim go on.
func (c *Containerd) ThawShim(sandboxID string) error {
	pid, err := c.Shim(sandboxID)
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		return fmt.Errorf("resuming shim %d: %w", pid, err)
	}
	return nil
}

// Shim returns the process id of a sandbox's shim.
func (c *Containerd) Shim(sandboxID string) (int, error) {
	want := []byte("\x00-id\x00" + sandboxID + "\x00")
	for _, pid := range processIDs() {
		if args := cmdline(pid); bytes.Contains(args, want) && bytes.Contains(args, []byte(c.socket()+"\x00")) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("sandbox %s has no shim", sandboxID)
}

// Wedge makes the real fault behind a ListContainers that hangs while all else answers: the shim is frozen, and an
// update of the container's resources waits for it with the container's status locked. ContainerStatus of this one
// container hangs, and every list that holds it, until release is called, before Close.
func (c *Containerd) Wedge(ctx context.Context, sandboxID, containerID string) (release func() error, err error) {
	if err := c.FreezeShim(ctx, sandboxID); err != nil {
		return nil, err
	}
	pending, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: wedgePatience})
	if err != nil {
		return nil, err
	}
	updating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pending.UpdateContainerResources(updating, containerID, &runtimeapi.LinuxContainerResources{CpuShares: 512})
	}()
	release = func() error {
		cancel()
		<-ended
		pending.Close()
		return c.ThawShim(sandboxID)
	}
	if err := c.awaitLock(ctx, containerID); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// awaitLock waits until the status of a container is no longer answered: not while many calls are that were asked after it. A
// deadline alone would take a busy machine for a lock.
func (c *Containerd) awaitLock(ctx context.Context, containerID string) error {
	client, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: runPatience})
	if err != nil {
		return err
	}
	defer client.Close()
	return poll(ctx, startPatience, "the container's status to be locked", func() (bool, error) {
		return overtaken(ctx, client, containerID)
	})
}

// overtaken reports whether the status of a container is still not answered when everything asked after it was.
func overtaken(ctx context.Context, client *crictl.Client, containerID string) (bool, error) {
	const others, pause = 25, 20 * time.Millisecond
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	status := make(chan crictl.Call, 1)
	go func() {
		_, call := client.ContainerStatus(ctx, containerID)
		status <- call
	}()
	for range others {
		if _, call := client.Version(ctx); !call.OK() {
			return false, callError(call)
		}
		select {
		case call := <-status:
			return false, errors.New("ContainerStatus: " + string(call.Code))
		case <-time.After(pause):
		}
	}
	return true, nil
}
