package canary

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
)

const (
	// mostEarlier bounds how many leftovers one run removes.
	mostEarlier = 10
	// latePatience is how long to look for a sandbox whose making was given up, and which may come to be all the same; and how
	// long to try to remove it while the runtime is at work on it.
	latePatience = 3 * time.Second
	// logPatience is how long the folder of the logs may take, which is on a disk that may hang.
	logPatience = 2 * time.Second
)

// removeEarlier removes the canaries that are left of runs that were killed.
func (c *course) removeEarlier(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Course/3)
	defer cancel()
	c.opts.Progress("removing leftovers")
	list, err := c.cri.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{Label: "true"}})
	if err != nil {
		_, c.res.Earlier.Err = outcomeOf(nil, err, 0, c.opts.RPCTimeout)
		return
	}
	e, now := &c.res.Earlier, time.Now()
	for _, s := range list {
		if !isLeftover(s, now) {
			continue
		}
		if len(e.Removed)+len(e.Failed) == mostEarlier {
			return
		}
		err := c.cri.StopPodSandbox(ctx, s.GetId())
		if err == nil || remote.IsNotFound(err) {
			err = c.cri.RemovePodSandbox(ctx, s.GetId())
		}
		if err != nil && !remote.IsNotFound(err) {
			_, e.Err = outcomeOf(nil, err, 0, c.opts.RPCTimeout)
			e.Failed = append(e.Failed, s.GetId())
			continue
		}
		e.Removed = append(e.Removed, s.GetId())
		c.removeLogs(ctx, s.GetLabels()[LabelRun])
	}
}

// cleanUp removes the sandbox, and with it the container, whatever has become of the course.
func (c *course) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Cleanup)
	defer cancel()
	id, sure := c.res.SandboxID, true
	if id == "" && c.making != "" {
		id, sure = c.find(ctx)
	}
	if id != "" {
		c.res.SandboxID = id
		sure = c.end(ctx, id)
		if !sure {
			c.res.Left = append(c.res.Left, id)
		}
	}
	c.res.CleanedUp = sure
	if !c.removeLogs(ctx, c.pod.run) {
		c.res.LogsLeft = logFolder(c.opts.LogDir, c.pod.run)
	}
}

// end stops and removes a sandbox. What hangs in the first will hang in the second. A stop that fails and works when it is
// made again was in somebody's way.
func (c *course) end(ctx context.Context, id string) bool {
	gone := func(err error) error {
		if remote.IsNotFound(err) {
			return nil
		}
		return err
	}
	stop := func(ctx context.Context) error { return gone(c.cri.StopPodSandbox(ctx, id)) }
	c.step(ctx, "StopPodSandbox", stop)
	switch s := c.last(); {
	case s.Outcome == Hung, s.Outcome == Cut:
		return false
	case s.Outcome == Failed && c.res.Spoiled == "" && stop(ctx) == nil:
		// A kubelet stops what it does not know at the same time, and of two that take down one network the later finds the half of
		// it gone. Trouble of the network's own comes again in the next attempt.
		c.res.Spoiled = ByOther
	}
	givenUp := slices.ContainsFunc(c.res.Steps, func(s Step) bool { return s.Outcome == Hung || s.Outcome == Cut })
	return c.step(ctx, "RemovePodSandbox", func(ctx context.Context) error {
		for began := time.Now(); ; {
			err := gone(c.cri.RemovePodSandbox(ctx, id))
			if err == nil || !givenUp || time.Since(began) > latePatience || status.Code(err) == codes.DeadlineExceeded {
				return err
			}
			// The runtime goes on with what was given up, and does not remove a container that is starting.
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	})
}

// find looks for the sandbox of a RunPodSandbox that brought no id. Where the runtime has answered that it failed, one look
// is enough; where the call was given up, the sandbox may still come to be, and not to see it proves nothing.
func (c *course) find(ctx context.Context) (id string, sure bool) {
	answered := c.making == Failed
	ctx, cancel := context.WithTimeout(ctx, max(latePatience, c.opts.RPCTimeout))
	defer cancel()
	began := time.Now()
	for {
		list, err := c.cri.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{LabelRun: c.pod.run}})
		for _, s := range list {
			if s.GetId() != "" && s.GetLabels()[Label] == "true" && s.GetLabels()[LabelRun] == c.pod.run {
				return s.GetId(), true
			}
		}
		if err != nil || answered || time.Since(began) > latePatience {
			return "", err == nil && answered
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// makeLogs makes the folder of the logs. Without one the canary runs all the same.
func (c *course) makeLogs(ctx context.Context) {
	folder := logFolder(c.opts.LogDir, c.pod.run)
	if folder != "" && await(ctx, func() error { return os.Mkdir(folder, 0o700) }) {
		c.pod.sandbox.LogDirectory, c.pod.container.LogPath = folder, filepath.Base(folder)+".log"
	}
}

// removeLogs removes the folder of a canary's logs, if there is one, and reports whether it is gone.
func (c *course) removeLogs(ctx context.Context, run string) bool {
	folder := logFolder(c.opts.LogDir, run)
	return folder == "" || await(ctx, func() error { return os.RemoveAll(folder) })
}

// await reports whether work on a disk was done in time. What hangs is left behind.
func await(ctx context.Context, work func() error) bool {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err == nil
	case <-ctx.Done():
		return false
	}
}
