package syncloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/remote"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager"
)

// A CleanupConfig says what to remove: all that syncLoops with this node name left.
type CleanupConfig struct {
	Endpoint        string
	NodeName        string
	RootDir, LogDir string
	Timeout         time.Duration // of a call; 0 means 30 s
}

// Cleaned is what was removed.
type Cleaned struct{ Sandboxes, Containers int }

// Cleanup stops and removes the sandboxes and containers that bear the node's name, unmounts and removes its volumes, and removes
// its folders of pods and logs. It goes on after an error, and returns all of them; run again it takes up what is left.
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
	problems := []error{listErr, err}
	for _, s := range sandboxes {
		if err := service.StopPodSandbox(ctx, s.GetId()); err != nil && !remote.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("stopping sandbox %s: %w", s.GetId(), err))
			continue
		}
		if err := service.RemovePodSandbox(ctx, s.GetId()); err != nil && !remote.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("removing sandbox %s: %w", s.GetId(), err))
			continue
		}
		done.Sandboxes++
	}
	for _, c := range containers { // most went with their sandbox
		if err := service.RemoveContainer(ctx, c.GetId()); err != nil && !remote.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("removing container %s: %w", c.GetId(), err))
			continue
		}
		done.Containers++
	}
	if errors.Join(problems...) == nil {
		problems = append(problems, removeFolders(cfg))
	}
	return done, errors.Join(append(problems, service.Close())...)
}

// removeFolders removes what the parts make below the two folders, and the folders themselves if nothing else is in them.
func removeFolders(cfg CleanupConfig) error {
	volumes := volumemanager.New(volumemanager.Config{
		RootDir: cfg.RootDir, NodeName: cfg.NodeName, Log: logr.Discard(),
		Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	})
	problems := []error{volumes.CleanupOrphans(nil)}
	if len(volumes.PodDirs()) == 0 {
		for _, dir := range []string{filepath.Join(cfg.LogDir, "pods"), filepath.Join(cfg.LogDir, "containers")} {
			problems = append(problems, os.RemoveAll(dir))
		}
	}
	for _, dir := range []string{filepath.Join(cfg.RootDir, "pods"), cfg.LogDir, cfg.RootDir} {
		_ = os.Remove(dir) // what holds something else stays
	}
	return errors.Join(problems...)
}
