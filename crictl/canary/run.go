package canary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/remote"
)

const (
	// execTimeout is for the program of ExecSync, which ends at once except on a busy node.
	execTimeout = 10 * time.Second
	// stoppedTimeout is how long to wait, after a failed step, until a sandbox is stopped that another client stops.
	stoppedTimeout = time.Second
	repeatEvery    = 100 * time.Millisecond
	// The exit code of a container that a signal ended is 128 and the signal's number.
	exitKilled, exitTerminated = 128 + 9, 128 + 15
	// interruptGrace is how long RunPodSandbox may continue after an interrupt: when it returns, the sandbox's id is
	// known.
	interruptGrace = 2 * time.Second
)

// A canaryRun is one canary that is running.
type canaryRun struct {
	cri    *remote.Service
	opts   Options
	res    *Result
	choice choice
	others []choice // to try if it does not run
	unfit  string   // error for which the image may be the reason
	pod    pod
	making Outcome // of RunPodSandbox; empty when it was not called
}

// step times one call, records it as a step, and reports whether it succeeded.
func (c *canaryRun) step(ctx context.Context, name string, call func(context.Context) error) bool {
	c.opts.Progress(name)
	start := time.Now()
	err := call(ctx)
	s := Step{Name: name, Elapsed: time.Since(start)}
	s.Outcome, s.Err = outcomeOf(ctx.Err(), err, s.Elapsed, c.opts.RPCTimeout)
	c.res.Steps = append(c.res.Steps, s)
	return s.Outcome == OK
}

func (c *canaryRun) last() *Step { return &c.res.Steps[len(c.res.Steps)-1] }

// prepare asks for the runtime's version, removes earlier canaries, and finds the image.
func (c *canaryRun) prepare(ctx context.Context) bool {
	ok := c.step(ctx, "Version", func(ctx context.Context) error {
		v, err := c.cri.Version(ctx)
		c.res.Version = crictl.Version{
			RuntimeName: v.GetRuntimeName(), RuntimeVersion: v.GetRuntimeVersion(),
			RuntimeAPIVersion: v.GetRuntimeApiVersion(),
		}
		return err
	})
	if !ok {
		return false
	}
	c.removeEarlier(ctx)
	if c.opts.Image != "" {
		return c.namedImage(ctx)
	}
	var images []*runtimeapi.Image
	return c.step(ctx, "ListImages", func(ctx context.Context) (err error) {
		images, err = c.cri.ListImages(ctx)
		return err
	}) && c.take(choose(images)...)
}

// namedImage finds the requested image, or pulls it if that is allowed.
func (c *canaryRun) namedImage(ctx context.Context) bool {
	var image *runtimeapi.Image
	if !c.step(ctx, "ImageStatus", func(ctx context.Context) (err error) {
		image, err = c.cri.ImageStatus(ctx, c.opts.Image)
		return err
	}) {
		return false
	}
	if image == nil && c.opts.Pull && !c.step(ctx, "PullImage", func(ctx context.Context) error {
		ref, err := c.cri.PullImage(ctx, &runtimeapi.ImageSpec{Image: c.opts.Image}, nil, nil)
		image = &runtimeapi.Image{Id: ref}
		return err
	}) {
		return false
	}
	return c.take(choiceOf(image, c.opts.Image))
}

// take sets the images to run, and reports whether there is one.
func (c *canaryRun) take(images ...choice) bool {
	if len(images) > 0 {
		c.choice, c.others, c.res.Image = images[0], images[1:], images[0].name
	}
	if c.choice.id == "" {
		c.res.Spoiled = NoImage
	}
	return c.choice.id != ""
}

// nextImage takes the next image if the last may have been the reason of the failure, and reports whether it did.
func (c *canaryRun) nextImage() bool {
	if c.unfit == "" || len(c.others) == 0 {
		return false
	}
	c.res.Unfit = append(c.res.Unfit, Unfit{c.choice.name, c.unfit})
	c.res.Attempts = 0
	return c.take(c.others...)
}

// live creates the sandbox and the container, uses them, and removes the container.
func (c *canaryRun) live(ctx context.Context) {
	c.res.SandboxID, c.making = "", ""
	if ctx.Err() != nil {
		return
	}
	driver, err := c.cri.RuntimeConfig(ctx)
	systemd := err == nil && driver.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD
	c.pod = newPod(c.opts, c.choice, time.Now(), systemd)
	c.makeLogs(ctx)
	if !c.run(ctx) {
		return
	}
	var id string
	for _, s := range []struct {
		name string
		call func(context.Context) error
	}{
		{"CreateContainer", func(ctx context.Context) (err error) {
			id, err = c.cri.CreateContainer(ctx, c.res.SandboxID, c.pod.container, c.pod.sandbox)
			return err
		}},
		{"StartContainer", func(ctx context.Context) error { return c.cri.StartContainer(ctx, id) }},
		{"ExecSync", func(ctx context.Context) error {
			resp, err := c.cri.ExecSync(ctx, id, []string{execProgram}, execTimeout)
			return cmp.Or(err, exitError(resp))
		}},
		{"ListContainerStats", func(ctx context.Context) error {
			stats, err := c.cri.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{Id: id})
			if err == nil && len(stats) == 0 {
				err = errors.New("the reply lacks the container")
			}
			return err
		}},
		{"StopContainer", func(ctx context.Context) error { return c.cri.StopContainer(ctx, id, 0) }},
		{"RemoveContainer", func(ctx context.Context) error { return c.cri.RemoveContainer(ctx, id) }},
	} {
		if s.name == "ExecSync" && c.choice.pause {
			c.res.Steps = append(c.res.Steps,
				Step{Name: s.name, Outcome: Skipped, Err: "the image has no program for it"})
			continue
		}
		if !c.step(ctx, s.name, s.call) && !c.excuse(ctx, id) || ctx.Err() != nil {
			return
		}
	}
}

// run creates the sandbox. Runtimes that cannot be asked for their cgroup driver (containerd before 2.0) name it in
// their error.
func (c *canaryRun) run(interrupted context.Context) bool {
	ctx, cancel := patient(interrupted)
	defer cancel()
	run := func(ctx context.Context) (err error) {
		c.res.SandboxID, err = c.cri.RunPodSandbox(ctx, c.pod.sandbox, "")
		return err
	}
	ok := c.step(ctx, "RunPodSandbox", run)
	if !ok && wantsSlice(c.last().Err) && interrupted.Err() == nil {
		c.pod.sandbox.Linux.CgroupParent = systemdParent
		c.res.Steps = c.res.Steps[:len(c.res.Steps)-1]
		ok = c.step(ctx, "RunPodSandbox", run)
	}
	c.making = c.last().Outcome
	return ok && interrupted.Err() == nil
}

// patient returns a context that outlives an interrupt of ctx by interruptGrace, but not its deadline.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	soft, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
			return
		}
		time.AfterFunc(interruptGrace, cancel)
	})
	return soft, func() { stop(); cancel() }
}

// excuse looks for a reason for a failed step other than the runtime, and reports whether the run may continue.
func (c *canaryRun) excuse(ctx context.Context, containerID string) bool {
	s := c.last()
	if s.Outcome != Failed {
		return false
	}
	command := append(c.pod.container.GetCommand(), "")[0]
	switch {
	case s.Name == "ExecSync" && lacks(s.Err, execProgram):
		s.Outcome, s.Err = Skipped, "the image has no program "+execProgram
		return true
	case s.Name == "StartContainer" && lacks(s.Err, command):
		c.res.Spoiled, c.unfit = ByImage, s.Err
	case c.stoppedByOther(ctx):
		c.res.Spoiled = ByOther
	case s.Name == "CreateContainer" || s.Name == "StartContainer":
		c.unfit = s.Err
	case s.Name == "ExecSync" || s.Name == "ListContainerStats":
		c.noteEnd(ctx, s, containerID)
	}
	return false
}

// stoppedByOther reports whether another client has stopped the sandbox. It waits a little, because such a client kills
// the containers first.
func (c *canaryRun) stoppedByOther(ctx context.Context) bool {
	return repeat(ctx, stoppedTimeout, func(ctx context.Context) bool {
		status, err := c.cri.PodSandboxStatus(ctx, c.res.SandboxID)
		return remote.IsNotFound(err) || err == nil && status.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY
	})
}

// noteEnd looks whether the container of a failed step has exited: killed by another client, or by itself.
func (c *canaryRun) noteEnd(ctx context.Context, s *Step, containerID string) {
	status, err := c.cri.ContainerStatus(ctx, containerID)
	code := status.GetExitCode()
	switch {
	case err != nil || status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED:
	case status.GetReason() != "OOMKilled" && (code == exitKilled || code == exitTerminated):
		c.res.Spoiled = ByOther
	default:
		s.Err = fmt.Sprintf("the container exited with code %d: %s", code, s.Err)
		c.unfit = s.Err
		if c.opts.Image != "" {
			c.res.Spoiled = ByImage
		}
	}
}

// repeat calls done until it returns true, and reports whether it did so within the limit.
func repeat(ctx context.Context, limit time.Duration, done func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(repeatEvery):
		}
	}
	return true
}
