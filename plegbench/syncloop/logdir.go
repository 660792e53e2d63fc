package syncloop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// logMark is the file in the log folder with the name of the node that it belongs to. The collector removes the logs of
// pods that it does not know: the folder must be one node's alone.
const logMark = "io.kdiag.syncloop"

// ErrForeignLogs is for a log folder with the logs of another program, such as a real kubelet's /var/log.
var ErrForeignLogs = errors.New("it has logs of another program, which would be removed as left-overs")

// claimLogs makes the log folder this node's.
func claimLogs(dir, node string) error {
	switch owner, err := logOwner(dir); {
	case err != nil:
		return err
	case owner == node:
		return nil
	case owner != "":
		return fmt.Errorf("log folder %s: it belongs to node %s", dir, owner)
	}
	for _, name := range []string{"pods", "containers"} {
		if entries, _ := os.ReadDir(filepath.Join(dir, name)); len(entries) > 0 {
			return fmt.Errorf("log folder %s: %w", dir, ErrForeignLogs)
		}
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, logMark), []byte(node+"\n"), 0o640)
}

// logOwner is the node whose log folder it is, or empty.
func logOwner(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, logMark))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// removeLogs removes the logs of a node, but not those of another.
func removeLogs(dir, node string) error {
	if owner, err := logOwner(dir); err != nil || owner != node {
		return err
	}
	return errors.Join(
		os.RemoveAll(filepath.Join(dir, "pods")), os.RemoveAll(filepath.Join(dir, "containers")),
		os.Remove(filepath.Join(dir, logMark)))
}
