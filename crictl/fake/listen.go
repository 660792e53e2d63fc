package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// maxSocketPath is the longest path of a unix socket on Linux: sun_path has 108 bytes, of which one ends the text.
const maxSocketPath = 107

// knockTimeout bounds the look at a socket that is there already.
const knockTimeout = time.Second

// Listen puts the scenario's socket at path and serves s on it. What that means is the scenario's SocketMode: a served
// socket, none at all, one that nobody listens on, or one that accepts connections and stays silent. A stale socket file
// at path is replaced; a file of another kind, or a socket on which somebody listens, is an error.
//
// The socket is there when Listen returns, until stop is called or ctx ends; then it is removed and s is stopped. stop
// waits for that, and may be called more than once.
func Listen(ctx context.Context, s *Server, path string) (stop func(), err error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listening on %s: the path has %d bytes, a unix socket's at most %d", path, len(path), maxSocketPath)
	}
	if err := clearPath(ctx, path); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	if s.scenario.Socket == SocketMissing {
		return stopOnce(ctx, s.Stop), nil
	}
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, innermost(err))
	}
	lis.SetUnlinkOnClose(false) // unlink below checks that the file is still ours
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", path, innermost(err)), lis.Close())
	}
	unlink := func() {
		if now, err := os.Lstat(path); err == nil && os.SameFile(made, now) {
			_ = os.Remove(path) // best effort: the next Listen replaces a stale file
		}
	}
	switch s.scenario.Socket {
	case SocketRefuse:
		if err := lis.Close(); err != nil {
			return nil, fmt.Errorf("closing the listener on %s: %w", path, err)
		}
		return stopOnce(ctx, func() { unlink(); s.Stop() }), nil
	case SocketSilent:
		return stopOnce(ctx, func() { unlink(); _ = lis.Close(); s.Stop() }), nil
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(lis) // ends with stop; a listener that breaks before looks like a dead daemon, as it should
	}()
	return stopOnce(ctx, func() { unlink(); s.Stop(); <-served }), nil
}

// stopOnce makes end run once, when the result is called or ctx ends, and makes all callers wait for it.
func stopOnce(ctx context.Context, end func()) func() {
	once := sync.OnceFunc(end)
	release := context.AfterFunc(ctx, once)
	return func() {
		release()
		once()
	}
}

// clearPath makes way for a new socket. It removes nothing but a socket that refuses connections.
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
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("somebody listens there already"), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("somebody may listen there already: %w", innermost(err))
}

// innermost strips the operations and paths that the net and os packages wrap around the system's words, and which the
// caller names better.
func innermost(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
