package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// maxSocketPath is the longest path of a unix socket on Linux: sun_path has 108 bytes, of which one ends the text.
const maxSocketPath = 107

// connectTimeout bounds the attempt to connect to a socket that exists already.
const connectTimeout = time.Second

// A Socket is a listener on a unix socket and the file that it made. Closing it leaves the file, as a dying daemon
// does.
type Socket struct {
	*net.UnixListener
	path string
	made os.FileInfo
}

// Bind makes a socket at path and listens on it. A mode other than 0 is that of the file from its first moment on.
func Bind(path string, mode fs.FileMode) (*Socket, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		if mode == 0 {
			return nil
		}
		// On Linux bind(2) gives the file the mode of the socket itself, so no client can connect before a chmod.
		var failed error
		err := raw.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), uint32(mode.Perm())) })
		return errors.Join(err, failed)
	}}
	lis, err := cfg.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, innermost(err))
	}
	s := &Socket{UnixListener: lis.(*net.UnixListener), path: path}
	s.SetUnlinkOnClose(false) // Unlink checks that the file is still ours
	if s.made, err = os.Lstat(path); err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", path, innermost(err)), lis.Close())
	}
	return s, nil
}

// Unlink removes the file, unless another has taken its place.
func (s *Socket) Unlink() {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(s.made, now) {
		_ = os.Remove(s.path) // best effort: the next Listen replaces a stale file
	}
}

// MakeWay checks that a socket can be made at path. It removes nothing but a socket that refuses connections.
func MakeWay(ctx context.Context, path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("listening on %s: the path has %d bytes, a unix socket's at most %d", path, len(path),
			maxSocketPath)
	}
	if err := clearPath(ctx, path); err != nil {
		return fmt.Errorf("listening on %s: %w", path, err)
	}
	return nil
}

func clearPath(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return innermost(err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file that is no socket; it is left alone")
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process listens there already"), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("another process may listen there already: %w", innermost(err))
}

// innermost strips the operations and paths that the net and os packages wrap around the system's error; callers add
// their own.
func innermost(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
