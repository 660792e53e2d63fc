package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LogSuffix is that of a container's log and of the link to it.
const LogSuffix = ".log"

// longestName is that of a file in ext4, in bytes.
const longestName = 255

// LogLink is the name of the link to a container's log by which log collectors find it: pod_namespace_container-id.log,
// cut where a file's name must end.
func LogLink(pod, namespace, name, id string) string {
	link := pod + "_" + namespace + "_" + name + "-" + id
	return link[:min(len(link), longestName-len(LogSuffix))] + LogSuffix
}

// A Remover removes dead containers with their logs.
type Remover struct {
	CRI interface {
		ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
		RemoveContainer(ctx context.Context, id string) error
	}
	LogDir     string // of the pods' logs; no log outside it is removed. Empty: none is
	SymlinkDir string // of the links to logs. Empty: there are none
	Log        logr.Logger
}

// Remove removes a dead container, its logs, rotated ones too, and the link to them. The logs go first: a container whose
// logs could not be removed is tried again, logs without their container would not be.
func (r Remover) Remove(ctx context.Context, id string) error {
	r.Log.V(4).Info("Removing container", "containerID", id)
	status, err := r.CRI.ContainerStatus(ctx, id)
	if err != nil {
		return fmt.Errorf("getting the status of container %q: %w", id, err)
	}
	if err := r.removeLogs(status.GetLogPath()); err != nil {
		return err
	}
	if r.SymlinkDir != "" {
		// The kubelet asks twice: the logs and the link belong to two parts of it. A slow runtime makes it felt.
		if status, err = r.CRI.ContainerStatus(ctx, id); err != nil {
			return fmt.Errorf("getting the status of container %q: %w", id, err)
		}
		l := status.GetLabels()
		link := LogLink(l[PodNameLabel], l[PodNamespaceLabel], l[ContainerNameLabel], status.GetId())
		if err := remove(filepath.Join(r.SymlinkDir, link)); err != nil {
			return err
		}
	}
	return r.CRI.RemoveContainer(ctx, id)
}

// removeLogs removes a log and what was rotated away from it, but nothing outside LogDir.
func (r Remover) removeLogs(path string) error {
	if rel, err := filepath.Rel(r.LogDir, path); r.LogDir == "" || err != nil || !filepath.IsLocal(rel) {
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
