// Package logs keeps the logs of running containers from growing without end: a log that has reached its size is renamed, the
// runtime is told to open a new one, and of the older ones a few are kept, compressed. It is the kubelet's container log manager
// (pkg/kubelet/logs/container_log_manager.go). The logs of dead containers go with them (package gc).
package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// CRI is the part of the runtime service that is called here.
type CRI interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	ReopenContainerLog(ctx context.Context, id string) error
}

// A Config is what New needs. All of it is required.
type Config struct {
	CRI      CRI
	NodeName string        // the value of container.OwnerLabel
	LogDir   string        // of the pods' logs; no file outside it is touched
	MaxSize  string        // containerLogMaxSize, as 10Mi; below 0 nothing is rotated
	MaxFiles int           // containerLogMaxFiles, of one container, at least 2
	Workers  int           // containerLogMaxWorkers
	Period   time.Duration // containerLogMonitorInterval
	Log      logr.Logger
}

// A Manager rotates the logs of one node's containers.
type Manager struct {
	Config
	maxSize int64 // bytes
}

// New makes a Manager.
func New(cfg Config) (*Manager, error) {
	if cfg.MaxFiles <= 1 {
		return nil, fmt.Errorf("invalid MaxFiles %d, must be > 1", cfg.MaxFiles)
	}
	size, err := resource.ParseQuantity(cfg.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("parsing the most size of a container's log, %q: %w", cfg.MaxSize, err)
	}
	return &Manager{Config: cfg, maxSize: size.Value()}, nil
}

// Run looks at all logs at once and then each period, counted from a round's end, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if m.maxSize < 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	m.Log.Info("Initializing container log rotate workers", "workers", m.Workers, "monitorPeriod", m.Period)
	wait.UntilWithContext(ctx, m.round, m.Period)
	return ctx.Err()
}

// round looks at the log of each container that runs: one that does not writes nothing more.
func (m *Manager) round(ctx context.Context) {
	m.Log.V(4).Info("Starting container log rotation sequence")
	all, err := m.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{})
	if err != nil {
		if ctx.Err() == nil {
			m.Log.Error(fmt.Errorf("failed to list containers: %w", err), "Failed to rotate container logs")
		}
		return
	}
	ids := make(chan string, len(all))
	for _, c := range all {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetLabels()[container.OwnerLabel] == m.NodeName {
			ids <- c.GetId()
		}
	}
	close(ids)
	var g errgroup.Group
	for worker := range m.Workers {
		g.Go(func() error {
			for id := range ids {
				if ctx.Err() == nil {
					m.look(ctx, worker+1, id)
				}
			}
			return nil
		})
	}
	_ = g.Wait() // each has said what went wrong
}

// look rotates the log of one container if it has reached its size. A log that somebody else took away is opened anew.
func (m *Manager) look(ctx context.Context, worker int, id string) {
	log := m.Log.WithValues("worker", worker, "containerID", id)
	status, err := m.CRI.ContainerStatus(ctx, id)
	if err != nil {
		log.Error(err, "Failed to get container status")
		return
	}
	path := status.GetLogPath()
	log = log.WithValues("path", path)
	if rel, err := filepath.Rel(m.LogDir, path); err != nil || !filepath.IsLocal(rel) {
		return // without a log, or with one that is not ours
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := m.CRI.ReopenContainerLog(ctx, id); err != nil {
			log.Error(err, "Container log doesn't exist, reopen container log failed")
			return
		}
		if info, err = os.Stat(path); err != nil {
			log.Error(err, "Failed to stat container log after reopen")
			return
		}
	}
	if err != nil {
		log.Error(err, "Failed to stat container log")
		return
	}
	log = log.WithValues("currentSize", info.Size(), "maxSize", m.maxSize)
	if info.Size() < m.maxSize {
		log.V(7).Info("log file doesn't need to be rotated")
		return
	}
	if err := m.rotate(ctx, id, path, time.Now().Format(stampFormat)); err != nil {
		log.Error(err, "Failed to rotate log for container")
	}
}
