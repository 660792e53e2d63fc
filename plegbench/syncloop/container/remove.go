package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LogSuffix is that of a container's log and of the link to it.
const LogSuffix = ".log"

// longestName is that of a file in ext4, in bytes.
const longestName = 255

// PodLogs is the folder of a pod's logs below a folder like /var/log. It has a folder for each container.
func PodLogs(logDir, namespace, name string, uid types.UID) string {
	return filepath.Join(logDir, "pods", namespace+"_"+name+"_"+string(uid))
}

// LogLink is the link below a folder like /var/log by which log collectors find a container's log:
// containers/pod_namespace_container-id.log, cut to the length of a file's name.
func LogLink(logDir, pod, namespace, name, id string) string {
	link := pod + "_" + namespace + "_" + name + "-" + id
	return filepath.Join(logDir, "containers", link[:min(len(link), longestName-len(LogSuffix))]+LogSuffix)
}

// A Remover removes containers.
type Remover interface {
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	RemoveContainer(ctx context.Context, id string) error
}

// Remove removes a dead container, its log below a folder like /var/log, and the link to it. The log goes first: a
// container whose log could not be removed is tried again, a log without its container would not be.
func Remove(ctx context.Context, cri Remover, logDir, id string) error {
	var status *runtimeapi.ContainerStatus
	for range 2 { // the kubelet calls it twice, for the log and for the link
		var err error
		if status, err = cri.ContainerStatus(ctx, id); err != nil {
			return fmt.Errorf("getting the status of container %q: %w", id, err)
		}
	}
	l := status.GetLabels()
	paths := []string{LogLink(logDir, l[PodNameLabel], l[PodNamespaceLabel], l[ContainerNameLabel], status.GetId())}
	if rel, err := filepath.Rel(filepath.Join(logDir, "pods"), status.GetLogPath()); err == nil && filepath.IsLocal(rel) {
		paths = append(paths, status.GetLogPath())
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return cri.RemoveContainer(ctx, id)
}
