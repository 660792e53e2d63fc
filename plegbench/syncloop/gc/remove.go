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

// shortestID is how much of an id a runtime takes for it, in characters.
const shortestID = 6

// DeleteContainer removes a dead container, its logs, rotated ones too, and the link to them.
func (c *Collector) DeleteContainer(ctx context.Context, id string) error {
	r := container.Remover{CRI: c.cfg.CRI, LogDir: c.cfg.LogDir, SymlinkDir: c.cfg.SymlinkDir, Log: c.cfg.Log}
	if err := r.Remove(ctx, id); err != nil {
		return err
	}
	c.cfg.Metrics.ContainerGCRemoved.Inc()
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
	links, err := filepath.Glob(filepath.Join(c.cfg.SymlinkDir, "*"+container.LogSuffix))
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
	base := strings.TrimSuffix(filepath.Base(link), container.LogSuffix)
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

// grace is how long a container is given to end, by the annotations that it was made with.
func grace(c *runtimeapi.Container) time.Duration {
	for _, key := range []string{container.DeletionGracePeriodAnnotation, container.TerminationGracePeriodAnnotation} {
		if seconds, err := strconv.ParseInt(c.GetAnnotations()[key], 10, 32); err == nil {
			return max(leastGrace, time.Duration(seconds)*time.Second)
		}
	}
	return leastGrace
}
