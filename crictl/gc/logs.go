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

	"github.com/kdiag/kdiag/crictl"
)

// maxLogFiles bounds what is looked at in a container's log directory.
const maxLogFiles = 10_000

// Logs removes the log files of removed containers: <attempt>.log and what rotation made of it, <attempt>.log.*, as the
// kubelet does (container_log_manager.go). Whatever path a runtime names, nothing outside of Dir is touched: every
// folder on the way must be a real one, and a file that is a symbolic link is unlinked, not followed.
type Logs struct {
	// Dir is the folder of all pods' logs as the runtime names it, /var/log/pods. A container whose runtime names no log has
	// the one that kubelets give: <namespace>_<pod>_<uid>/<container>/<attempt>.log below it.
	Dir string
	// Root is the folder that stands for the node's "/"; empty means "/".
	Root string
}

// remove removes the log files of a container. That there are none is no error.
func (l *Logs) remove(ctx context.Context, st *crictl.ContainerStatus) error {
	parts, err := l.parts(st)
	if err != nil {
		return err
	}
	_, err = abandonable(ctx, "removing its log", func() (struct{}, error) { return struct{}{}, l.unlink(parts) })
	return err
}

// parts are the steps from Dir down to the log file.
func (l *Logs) parts(st *crictl.ContainerStatus) ([]string, error) {
	path := st.LogPath
	if path == "" {
		pod := st.Pod.Namespace + "_" + st.Pod.Name + "_" + st.Pod.UID
		path = l.Dir + "/" + pod + "/" + st.Name + "/" + strconv.FormatUint(uint64(st.Attempt), 10) + ".log"
	}
	// Not cleaned: what holds "." or ".." is none that a kubelet gave.
	rest, ok := strings.CutPrefix(path, strings.TrimRight(l.Dir, "/")+"/")
	parts := strings.Split(rest, "/")
	for _, part := range parts {
		ok = ok && part != "" && part != "." && part != ".." && !strings.ContainsRune(part, 0)
	}
	if !ok || len(parts) < 2 {
		return nil, fmt.Errorf("its log %.300q is not below %s", path, l.Dir)
	}
	return parts, nil
}

func (l *Logs) unlink(parts []string) error {
	dir, err := os.OpenRoot(filepath.Join("/", l.Root, l.Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, part := range parts[:len(parts)-1] {
		if err != nil {
			break
		}
		var next *os.Root
		next, err = realDir(dir, part)
		err = errors.Join(err, dir.Close())
		dir = next
	}
	if dir == nil || err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if dir != nil {
			err = errors.Join(err, dir.Close())
		}
		return err
	}
	return errors.Join(unlinkIn(dir, parts[len(parts)-1]), dir.Close())
}

// realDir opens a folder of dir that is no symbolic link.
func realDir(dir *os.Root, name string) (*os.Root, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%s is no folder", filepath.Join(dir.Name(), name))
	}
	next, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := next.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s was exchanged meanwhile", filepath.Join(dir.Name(), name))
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// unlinkIn removes a log and its rotated parts.
func unlinkIn(dir *os.Root, log string) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	found, err := f.Readdirnames(maxLogFiles)
	_ = f.Close() // it was only read
	if len(found) == 0 {
		return nil // empty, which Readdirnames reports as an end of file
	}
	for _, name := range found {
		if name != log && !strings.HasPrefix(name, log+".") {
			continue
		}
		if info, e := dir.Lstat(name); e != nil || info.IsDir() {
			continue
		}
		if e := dir.Remove(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
