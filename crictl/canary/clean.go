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

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/remote"
)

const (
	// maxEarlier bounds how many leftovers one run removes.
	maxEarlier = 10
	// lateTimeout is how long to look for a sandbox whose creation timed out, and which may appear all the same; and
	// how long to try to remove it while the runtime still works on it.
	lateTimeout = 3 * time.Second
	// logTimeout bounds work on the folder of the logs, whose disk may hang.
	logTimeout = 2 * time.Second
)

// removeEarlier removes the canaries of earlier runs that were killed.
func (c *canaryRun) removeEarlier(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Course/3)
	defer cancel()
	c.opts.Progress("removing leftovers")
	ours := &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{Label: "true"}}
	list, err := c.cri.ListPodSandbox(ctx, ours)
	if err != nil {
		_, c.res.Earlier.Err = outcomeOf(nil, err, 0, c.opts.RPCTimeout)
		return
	}
	e, now := &c.res.Earlier, time.Now()
	for _, s := range list {
		if !isLeftover(s, now) {
			continue
		}
		if len(e.Removed)+len(e.Failed) == maxEarlier {
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

// cleanUp removes the sandbox, and with it the container, however the run ended.
func (c *canaryRun) cleanUp(ctx context.Context) {
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

// end stops and removes a sandbox. If the stop hangs, the removal would too. A stop that fails, and works when it is
// repeated, met another client's.
func (c *canaryRun) end(ctx context.Context, id string) bool {
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
		// A kubelet stops unknown sandboxes at the same time, and of two clients that tear down one network the later
		// finds half of it gone. A problem of the network itself shows again in the next attempt.
		c.res.Spoiled = ByOther
	}
	givenUp := slices.ContainsFunc(c.res.Steps, func(s Step) bool { return s.Outcome == Hung || s.Outcome == Cut })
	return c.step(ctx, "RemovePodSandbox", func(ctx context.Context) (err error) {
		// A runtime that still works on a call that timed out does not remove a container that is starting.
		repeat(ctx, lateTimeout, func(context.Context) bool {
			err = gone(c.cri.RemovePodSandbox(ctx, id))
			return err == nil || !givenUp || status.Code(err) == codes.DeadlineExceeded
		})
		return err
	})
}

// find looks for the sandbox of a RunPodSandbox that returned no id. If the runtime answered with an error, one list
// is enough; if the call timed out, the sandbox may still appear, and its absence proves nothing.
func (c *canaryRun) find(ctx context.Context) (id string, sure bool) {
	filter := &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{LabelRun: c.pod.run}}
	repeat(ctx, lateTimeout, func(context.Context) bool {
		list, err := c.cri.ListPodSandbox(ctx, filter)
		for _, s := range list {
			if s.GetLabels()[Label] == "true" && s.GetLabels()[LabelRun] == c.pod.run {
				id = s.GetId()
			}
		}
		sure = id != "" || err == nil && c.making == Failed
		return sure || err != nil
	})
	return id, sure
}

// makeLogs makes the folder of the logs. The canary also runs without one.
func (c *canaryRun) makeLogs(ctx context.Context) {
	folder := logFolder(c.opts.LogDir, c.pod.run)
	if folder != "" && onDisk(ctx, func() error { return os.Mkdir(folder, 0o700) }) {
		c.pod.sandbox.LogDirectory, c.pod.container.LogPath = folder, filepath.Base(folder)+".log"
	}
}

// removeLogs removes the folder of a canary's logs, if there is one, and reports whether it is gone.
func (c *canaryRun) removeLogs(ctx context.Context, run string) bool {
	folder := logFolder(c.opts.LogDir, run)
	return folder == "" || onDisk(ctx, func() error { return os.RemoveAll(folder) })
}

// onDisk reports whether work on a disk was done in time.
func onDisk(ctx context.Context, work func() error) bool {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	_, err := deadline.Run(ctx, "working on a disk", func(context.Context) (struct{}, error) { return struct{}{}, work() })
	return err == nil
}
