package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/safefile"
)

// TempHint is what to do where no temporary folder can be made.
const TempHint = "name a folder that you may write to, such as TMPDIR=/tmp"

// How long a file system may take for a file that a person named, before it counts as one that hangs: to look at or
// open it, and to read or write it, which may be much.
const (
	lookTime = 3 * time.Second
	copyTime = 10 * time.Second
)

// Look runs look, which does something with the name of a file, and returns an error if its file system does not
// answer.
func Look[T any](name string, look func() (T, error)) (T, error) { return inTime(name, lookTime, look) }

func inTime[T any](name string, most time.Duration, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	v, err := deadline.Run(ctx, "using "+name, func(context.Context) (T, error) { return f() })
	if errors.Is(err, deadline.ErrAbandoned) {
		err = errors.New(name + ": the file system does not answer")
	}
	return v, err
}

// ReadFile reads a regular file of at most so many bytes: a device or a pipe may never end.
func ReadFile(name string, most int64) ([]byte, error) {
	f, err := Look(name, func() (*os.File, error) {
		f, err := safefile.Open(name, 0)
		return f, withName(name, err)
	})
	if err != nil {
		return nil, err
	}
	return inTime(name, copyTime, func() ([]byte, error) {
		data, err := safefile.ReadAll(f, most)
		return data, withName(name, err)
	})
}

// withName puts the name of a file before an error that lacks it.
func withName(name string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); err == nil || ok {
		return err
	}
	return fmt.Errorf("%s %w", name, err)
}

// Regular makes the path that a flag names absolute, and returns an error of bad input unless a regular file is there.
// Without a path there is none.
func Regular(flag string, path *string, hint string) error {
	if *path == "" {
		return nil
	}
	abs, err := filepath.Abs(*path)
	if *path = abs; err == nil {
		var info fs.FileInfo
		info, err = Look(abs, func() (fs.FileInfo, error) { return os.Stat(abs) })
		if err == nil && !info.Mode().IsRegular() {
			err = withName(abs, safefile.ErrNotRegular)
		}
	}
	if err != nil {
		return Usage("--"+flag+": "+err.Error(), hint)
	}
	return nil
}

// HoldsText reports whether standard input is a file or a pipe, which a person put there to be read. It is neither a
// terminal nor /dev/null, as under cron, systemd or the node problem detector; nor a socket, as in a command that ssh
// runs, which stays open for as long as the caller's terminal.
func HoldsText(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && (info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0)
}

// A Destination is a file that a command will write at its end. It is opened before any work is done, so that an hour's
// work is not lost to a folder that cannot be written.
type Destination struct {
	Path   string // what will be replaced, links followed
	Exists bool   // something is there already
	mode   fs.FileMode
	tmp    *os.File
}

// OpenDestination prepares for writing the file that a flag names. What is there and is no file, a device above all, is
// never replaced.
func OpenDestination(flag, name string) (*Destination, error) {
	d, err := Look(name, func() (*Destination, error) { return openDestination(name) })
	if err != nil {
		return nil, Usage(flag+" "+err.Error(), "name a file in a folder that you may write to")
	}
	return d, nil
}

func openDestination(name string) (*Destination, error) {
	d := &Destination{Path: name}
	switch info, err := os.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New(name + " exists and is not a regular file")
	default:
		d.Exists, d.mode = true, info.Mode().Perm()
	}
	if target, err := filepath.EvalSymlinks(name); err == nil {
		d.Path = target
	}
	var err error
	d.tmp, err = os.CreateTemp(filepath.Dir(d.Path), ".kdiag-*")
	return d, err
}

// OpenPage prepares for writing the page that --html names; nil without a name. It replaces nothing but *.html: a log
// that was asked about, above all.
func OpenPage(name string) (*Destination, error) {
	if name == "" {
		return nil, nil
	}
	d, err := OpenDestination("--html", name)
	if err == nil && d.Exists && filepath.Ext(name) != ".html" {
		d.Close()
		return nil, Usage("--html "+name+" exists", "only a file named *.html is replaced")
	}
	return d, err
}

// Write puts the file, if there is to be one, in place so that a reader sees the old one or the whole new one, never a
// part. A file that is replaced keeps its mode; a new one is for its owner only.
func (d *Destination) Write(data []byte) error {
	if d == nil {
		return nil
	}
	_, err := inTime(d.Path, copyTime, func() (any, error) { return nil, d.write(data) })
	if err != nil {
		return Fail(fmt.Errorf("saving to %s: %w", d.Path, err), ExitUnknown, "the result above is all there is")
	}
	return nil
}

func (d *Destination) write(data []byte) error {
	_, err := d.tmp.Write(data)
	if err == nil && d.Exists {
		err = d.tmp.Chmod(d.mode)
	}
	return Publish(d.tmp, d.Path, err)
}

// Publish closes a file that was written, and gives it its name, unless writing it failed, as err says: then it is
// removed.
func Publish(f *os.File, path string, err error) error {
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is returned
	}
	return err
}

// Close removes what Write did not turn into a file.
func (d *Destination) Close() {
	if d == nil {
		return
	}
	_, _ = Look(d.Path, func() (any, error) {
		_ = d.tmp.Close()
		return nil, os.Remove(d.tmp.Name())
	})
}
