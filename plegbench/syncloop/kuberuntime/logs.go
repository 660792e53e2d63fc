package kuberuntime

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// PodLogs is the folder of a pod's logs below a folder like /var/log. It holds a folder for each container.
func PodLogs(logDir, namespace, name string, uid types.UID) string {
	return filepath.Join(logDir, "pods", namespace+"_"+name+"_"+string(uid))
}

// logPath is a container's log file below its pod's folder.
func logPath(name string, restarts int) string {
	return filepath.Join(name, strconv.Itoa(restarts)+container.LogSuffix)
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
		number, _, ok := strings.Cut(f.Name(), container.LogSuffix) // 3.log, 3.log.20260901-120000, 3.log.20260901-120000.gz
		n, err := strconv.ParseUint(number, 10, 31)
		if ok && err == nil && !f.IsDir() {
			restarts = max(restarts, int(n)+1)
		}
	}
	return restarts, nil
}

// links is the folder of the links to containers' logs.
func (m *Manager) links() string { return filepath.Join(m.LogDir, "containers") }

// remove removes a dead container and its logs.
func (m *Manager) remove(ctx context.Context, id string) error {
	r := container.Remover{CRI: m.CRI, LogDir: filepath.Join(m.LogDir, "pods"), SymlinkDir: m.links(), Log: m.Log}
	return r.Remove(ctx, id)
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
