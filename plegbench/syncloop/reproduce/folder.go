package reproduce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// folderPrefix begins the name of each run's folder, which is also the name of its node. All objects of the run in a
// runtime have it as a label, so that the folder identifies them.
const folderPrefix = "kdiag-reproduce-"

// A folder holds all files of one run. As long as its lock is held the run lives.
type folder struct {
	dir  string
	lock *os.File
}

func newFolder(parent, endpoint string) (*folder, error) {
	dir, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("making a folder for the run: %w", err)
	}
	f := &folder{dir: dir}
	f.lock, err = locked(f.path("lock"))
	err = errors.Join(err,
		os.WriteFile(f.path("endpoint"), []byte(endpoint), 0o600), // for the clean-up after a run that was killed
		os.Mkdir(f.path("manifests"), 0o700))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the run's folder: %w", err), os.RemoveAll(dir))
	}
	return f, nil
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// node is the name of the run's node.
func (f *folder) node() string { return filepath.Base(f.dir) }

func (f *folder) close() error {
	return errors.Join(os.RemoveAll(f.dir), f.lock.Close())
}

// locked opens a file and locks it, which ends with the process at the latest. A file that another process has locked
// is an error.
func locked(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), file.Close())
	}
	return file, nil
}

// Cleanup removes the remains of this user's killed runs, in their runtimes and below parent, and counts them. It
// leaves live runs alone, continues after an error, and returns all errors.
func Cleanup(ctx context.Context, parent string) (syncloop.Cleaned, error) {
	var done syncloop.Cleaned
	dirs, err := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	problems := []error{err}
	for _, dir := range dirs {
		lock, err := locked(filepath.Join(dir, "lock"))
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrPermission) {
			continue // its run is alive, or it is another user's
		}
		f := &folder{dir: dir, lock: lock}
		// Without an endpoint the run used the embedded runtime, which ended with it, or was killed at its very start.
		endpoint, _ := os.ReadFile(f.path("endpoint"))
		if err == nil && len(endpoint) > 0 {
			var removed syncloop.Cleaned
			removed, err = f.clean(ctx, string(endpoint), nil)
			done.Sandboxes += removed.Sandboxes
			done.Containers += removed.Containers
		}
		if err == nil {
			err = f.close()
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", dir, err))
			continue
		}
		done.Folders = append(done.Folders, dir)
	}
	return done, errors.Join(problems...)
}

// clean removes the run's objects from a runtime, with its cgroups.
func (f *folder) clean(
	ctx context.Context, endpoint string, dialer func(context.Context, string) (net.Conn, error),
) (syncloop.Cleaned, error) {
	return syncloop.Cleanup(ctx, syncloop.CleanupConfig{
		Endpoint: endpoint, NodeName: f.node(), RootDir: f.path("root"), LogDir: f.path("log"), Dialer: dialer,
	})
}
