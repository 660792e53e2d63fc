package syncloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager"
)

// A CleanupConfig selects what to remove: everything that syncLoops with this node name left.
type CleanupConfig struct {
	Endpoint        string
	NodeName        string
	RootDir, LogDir string
	Timeout         time.Duration // of a call, and of the attempts to remove a sandbox; 0 means 30 s
}

// Cleaned is what was removed.
type Cleaned struct {
	Sandboxes, Containers int
	Folders               []string // RootDir and LogDir, if they were removed
}

// Cleanup stops and removes the sandboxes and containers with the node's name, unmounts and removes its volumes, and
// removes its folders of pods and logs, and their cgroups. It continues after errors, and returns all of them.
func Cleanup(ctx context.Context, cfg CleanupConfig) (Cleaned, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	var done Cleaned
	service, err := remote.Dial(cfg.Endpoint, remote.Options{Timeout: cfg.Timeout, Log: logr.Discard()})
	if err != nil {
		return done, err
	}
	label := map[string]string{container.OwnerLabel: cfg.NodeName}
	containers, listErr := service.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: label})
	sandboxes, err := service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: label})
	if listErr != nil && err != nil {
		err := fmt.Errorf("listing what node %s has on %s: %w", cfg.NodeName, cfg.Endpoint, listErr)
		return done, errors.Join(err, service.Close())
	}
	problems := []error{listErr, err}
	done.Sandboxes, err = removeSandboxes(ctx, service, cfg.Timeout, sandboxes)
	problems = append(problems, err)
	for _, c := range containers { // most went with their sandbox
		if err := service.RemoveContainer(ctx, c.GetId()); err != nil && !remote.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("removing container %s: %w", c.GetId(), err))
			continue
		}
		done.Containers++
	}
	if errors.Join(problems...) == nil {
		done.Folders, err = removeFolders(cfg)
		problems = append(problems, err)
	}
	return done, errors.Join(append(problems, service.Close())...)
}

// atOnce is how many sandboxes are removed at a time: stopping one waits for processes to end.
const atOnce = 8

// attemptPause is the pause between two attempts to remove a sandbox. Some runtimes fail to stop a container that is
// just ending (containerd 1.6: "ttrpc: closed"), or to remove one that is being started or removed.
const attemptPause = 200 * time.Millisecond

func removeSandbox(ctx context.Context, service *remote.Service, id string) error {
	if err := service.StopPodSandbox(ctx, id); err != nil && !remote.IsNotFound(err) {
		return fmt.Errorf("stopping sandbox %s: %w", id, err)
	}
	if err := service.RemovePodSandbox(ctx, id); err != nil && !remote.IsNotFound(err) {
		return fmt.Errorf("removing sandbox %s: %w", id, err)
	}
	return nil
}

// removeSandboxes stops and removes sandboxes and returns how many it removed. within bounds the attempts for each.
func removeSandboxes(
	ctx context.Context, service *remote.Service, within time.Duration, sandboxes []*runtimeapi.PodSandbox,
) (int, error) {
	problems := make([]error, len(sandboxes))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, s := range sandboxes {
		g.Go(func() error {
			return wait.PollUntilContextTimeout(ctx, attemptPause, within, true, func(context.Context) (bool, error) {
				problems[i] = removeSandbox(ctx, service, s.GetId())
				return problems[i] == nil, nil
			})
		})
	}
	_ = g.Wait() // the errors of the last attempts are in problems
	failed := slices.DeleteFunc(problems, func(err error) bool { return err == nil })
	return len(sandboxes) - len(failed), errors.Join(failed...)
}

// removeFolders removes the pods' cgroups, what the parts create below the two folders, and the folders themselves if
// they are empty then. It returns those that it removed.
func removeFolders(cfg CleanupConfig) (removed []string, err error) {
	volumes := volumemanager.New(volumemanager.Config{
		RootDir: cfg.RootDir, NodeName: cfg.NodeName, Log: logr.Discard(),
		Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	})
	err = errors.Join(forgetCgroups(cgroupMount, cfg.RootDir), volumes.CleanupOrphans(nil))
	if len(volumes.PodDirs()) == 0 {
		err = errors.Join(err, removeLogs(cfg.LogDir, cfg.NodeName))
	}
	_ = os.Remove(filepath.Join(cfg.RootDir, "pods")) // unless something else is in it
	for _, dir := range []string{cfg.LogDir, cfg.RootDir} {
		if os.Remove(dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed, err
}
