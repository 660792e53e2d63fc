package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// longestFileName is that of ext4, in bytes.
const longestFileName = 255

// PodLogs is the folder of a pod's logs below a folder like /var/log. It holds a folder for each container.
func PodLogs(logDir, namespace, name string, uid types.UID) string {
	return filepath.Join(logDir, "pods", namespace+"_"+name+"_"+string(uid))
}

// logPath is a container's log file below its pod's folder.
func logPath(name string, restarts int) string {
	return filepath.Join(name, strconv.Itoa(restarts)+".log")
}

// ContainerLogLink is the symlink to a container's log by which log collectors find it, below a folder like /var/log.
func ContainerLogLink(logDir, namespace, pod, name, id string) string {
	const suffix = ".log"
	file := pod + "_" + namespace + "_" + name + "-" + id
	return filepath.Join(logDir, "containers", file[:min(len(file), longestFileName-len(suffix))]+suffix)
}

// restartsByLogs is the restart count of a container of which the runtime knows no instance: one more than that of its
// newest log, so that no log is overwritten after the runtime lost its state.
func restartsByLogs(dir string) (int, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	restarts := 0
	for _, f := range files {
		number, _, ok := strings.Cut(f.Name(), ".log") // 3.log, 3.log.20260901-120000, 3.log.20260901-120000.gz
		n, err := strconv.ParseUint(number, 10, 31)
		if ok && err == nil && !f.IsDir() {
			restarts = max(restarts, int(n)+1)
		}
	}
	return restarts, nil
}

// linkLog makes the symlink to a container's log, if there is a log.
func (m *Manager) linkLog(log, link, id string) {
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return
	}
	err := os.MkdirAll(filepath.Dir(link), 0o755)
	if err == nil {
		err = os.Symlink(log, link)
	}
	if err != nil {
		m.Log.Error(err, "Failed to create legacy symbolic link", "path", link, "containerID", id, "containerLogPath", log)
	}
}

// DeleteContainer removes a container that does not run, with its logs. The logs go first: a container whose logs could not
// be removed is tried again, logs without their container would not be.
func (m *Manager) DeleteContainer(ctx context.Context, id string) error {
	m.Log.V(4).Info("Removing container", "containerID", id)
	s, err := m.CRI.ContainerStatus(ctx, id)
	if err != nil {
		return fmt.Errorf("asking for the log of container %s: %w", id, err)
	}
	l := s.GetLabels()
	link := ContainerLogLink(m.LogDir, l[container.PodNamespaceLabel], l[container.PodNameLabel], l[container.ContainerNameLabel], id)
	files := []string{link}
	// What the runtime names is only removed where our logs are. Rotated files have a suffix.
	if log := s.GetLogPath(); strings.HasPrefix(log, filepath.Join(m.LogDir, "pods")+string(filepath.Separator)) {
		rotated, err := filepath.Glob(log + ".*")
		if err != nil {
			return fmt.Errorf("looking for rotated logs of %s: %w", log, err)
		}
		files = append(append(files, log), rotated...)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a log of container %s: %w", id, err)
		}
	}
	return m.CRI.RemoveContainer(ctx, id)
}
