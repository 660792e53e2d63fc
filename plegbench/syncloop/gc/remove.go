package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// leastGrace is what a container is given at least to end (minimumGracePeriodInSeconds in kuberuntime_manager.go).
const leastGrace = 2 * time.Second

// The names of links to logs: pod_namespace_container-id.log, cut where a file's name must end. A runtime takes the first
// six characters of an id for it.
const (
	linkSuffix  = ".log"
	longestName = 255
	shortestID  = 6
)

// DeleteContainer removes a dead container, its logs, rotated ones too, and the link to them.
func (c *Collector) DeleteContainer(ctx context.Context, id string) error {
	c.cfg.Log.V(4).Info("Removing container", "containerID", id)
	status, err := c.cfg.CRI.ContainerStatus(ctx, id)
	if err != nil {
		return fmt.Errorf("getting the status of container %q: %w", id, err)
	}
	if err := c.removeLogs(status.GetLogPath()); err != nil {
		return err
	}
	if c.cfg.SymlinkDir != "" {
		// The kubelet asks twice: the logs and the link belong to two parts of it. A slow runtime makes it felt.
		if status, err = c.cfg.CRI.ContainerStatus(ctx, id); err != nil {
			return fmt.Errorf("getting the status of container %q: %w", id, err)
		}
		if err := remove(filepath.Join(c.cfg.SymlinkDir, linkName(status))); err != nil {
			return err
		}
	}
	if err := c.cfg.CRI.RemoveContainer(ctx, id); err != nil {
		return err
	}
	c.cfg.Metrics.ContainerGCRemoved.Inc()
	return nil
}

// removeLogs removes a log and what was rotated away from it, but nothing outside LogDir.
func (c *Collector) removeLogs(path string) error {
	if rel, err := filepath.Rel(c.cfg.LogDir, path); c.cfg.LogDir == "" || err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), filepath.Base(path)) {
			if err := remove(filepath.Join(filepath.Dir(path), f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes a file that may be gone already.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// logs removes the log directories of pods that may lose all, and then links that lead nowhere.
func (c *Collector) logs(ctx context.Context) error {
	if c.cfg.LogDir != "" && c.cfg.SourcesReady() {
		dirs, err := os.ReadDir(c.cfg.LogDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, dir := range dirs {
			parts := strings.Split(dir.Name(), "_")
			uid := types.UID(parts[len(parts)-1])
			if len(parts) != 3 || !c.cfg.Pods.ShouldPodContentBeRemoved(uid) {
				continue
			}
			c.cfg.Log.V(4).Info("Removing pod logs", "podUID", uid)
			if err := os.RemoveAll(filepath.Join(c.cfg.LogDir, dir.Name())); err != nil {
				c.cfg.Log.Error(err, "Failed to remove pod logs directory", "path", dir.Name())
			}
		}
	}
	if c.cfg.SymlinkDir == "" {
		return nil
	}
	links, err := filepath.Glob(filepath.Join(c.cfg.SymlinkDir, "*"+linkSuffix))
	if err != nil {
		return err
	}
	for _, link := range links {
		if _, err := os.Stat(link); errors.Is(err, fs.ErrNotExist) && c.isDead(ctx, link) {
			if err := os.Remove(link); err != nil {
				c.cfg.Log.Error(err, "Failed to remove container log dead symlink", "path", link)
			} else {
				c.cfg.Log.V(4).Info("Removed symlink", "path", link)
			}
		}
	}
	return nil
}

// isDead reports whether a link that leads nowhere, into LogDir, may go. While a log is rotated there is none for a moment, so
// the container must have ended, or be unknown to the runtime.
func (c *Collector) isDead(ctx context.Context, link string) bool {
	target, err := os.Readlink(link)
	if err != nil {
		return false
	}
	if rel, err := filepath.Rel(c.cfg.LogDir, target); c.cfg.LogDir == "" || err != nil || !filepath.IsLocal(rel) {
		return false
	}
	base := strings.TrimSuffix(filepath.Base(link), linkSuffix)
	id := base[strings.LastIndexByte(base, '-')+1:]
	if len(id) < shortestID {
		c.cfg.Log.V(4).Info("Unable to obtain container ID", "err", fmt.Errorf("container id %q is too short", id))
		return true
	}
	status, err := c.cfg.CRI.ContainerStatus(ctx, id)
	if err != nil {
		c.cfg.Log.Info("Error getting ContainerStatus for containerID", "containerID", id, "err", err)
		return true
	}
	if status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		c.cfg.Log.V(5).Info("Container is still running, not removing symlink", "containerID", id, "path", link)
		return false
	}
	return true
}

// linkName is the name of the link to a container's log.
func linkName(s *runtimeapi.ContainerStatus) string {
	l := s.GetLabels()
	name := l[container.PodNameLabel] + "_" + l[container.PodNamespaceLabel] + "_" + l[container.ContainerNameLabel] + "-" + s.GetId()
	return name[:min(len(name), longestName-len(linkSuffix))] + linkSuffix
}

// grace is how long a container is given to end, by the annotations that it was made with.
func grace(c *runtimeapi.Container) time.Duration {
	for _, key := range []string{container.DeletionGracePeriodAnnotation, container.TerminationGracePeriodAnnotation} {
		if seconds, err := strconv.ParseInt(c.GetAnnotations()[key], 10, 32); err == nil {
			return max(leastGrace, time.Duration(seconds)*time.Second)
		}
	}
	return leastGrace
}
