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

// socketMode restricts the socket to the user who made it: access to a runtime is as good as root.
const socketMode = 0o600

// connectTimeout bounds the attempt to connect to a socket that exists already.
const connectTimeout = time.Second

// A Socket is a listener on a unix socket and the file that it made. Closing it leaves the file, as a dying daemon
// does.
type Socket struct {
	net.Listener
	path string
	made os.FileInfo
}

// A ListenFunc makes the listener of a socket. Tests replace the kernel's, which is nil, by one in memory.
type ListenFunc func(path string) (net.Listener, error)

// Bind makes a socket at path, mode 0600, and listens on it. A socket that refuses connections is replaced; any other
// file there is left alone and an error. Only the kernel's listener has a file.
func (listen ListenFunc) Bind(ctx context.Context, path string) (_ *Socket, err error) {
	if listen != nil {
		lis, err := listen(path)
		return &Socket{Listener: lis}, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("listening on %s: %w", path, err)
		}
	}()
	if err := clearPath(ctx, path); err != nil {
		return nil, err
	}
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		// On Linux bind(2) gives the file the mode of the socket itself, so no client can connect before a chmod.
		var failed error
		err := raw.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), socketMode) })
		return errors.Join(err, failed)
	}}
	lis, err := cfg.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	lis.(*net.UnixListener).SetUnlinkOnClose(false) // Unlink checks that the file is still ours
	s := &Socket{Listener: lis, path: path}
	if s.made, err = os.Lstat(path); err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	return s, nil
}

// Unlink removes the file, unless another has taken its place.
func (s *Socket) Unlink() {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(s.made, now) {
		_ = os.Remove(s.path) // best effort: the next Bind replaces a stale file
	}
}

// clearPath removes a socket that refuses connections, and fails for any other file.
func clearPath(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file that is not a socket; it is left alone")
	}
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process listens there already"), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("another process may listen there already: %w", err)
}
