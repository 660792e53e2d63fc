package crictl

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// http2Hello is what an HTTP/2 client says first: the connection preface and an empty SETTINGS frame.
	http2Hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	// frameHeader is the size of the header that begins every frame.
	frameHeader = 9
	// firstBytes is how much of an answer is read, and foreignBytes how much of a foreign one is shown.
	firstBytes   = 64
	foreignBytes = 16
	// backlogTries is how often a full listen queue is tried before it counts: one look may have met a burst.
	backlogTries = 3
)

// Probe knocks at a socket: it looks at the file, connects, and waits for the server's first HTTP/2 frame. It sends no
// RPC. The context bounds it, or DefaultRPCTimeout if the context has no deadline: when that is reached after connecting,
// the socket is ConnectSilent.
func Probe(ctx context.Context, endpoint string) Connect {
	start := time.Now()
	cancel := context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancel = context.WithTimeout(ctx, DefaultRPCTimeout)
	}
	defer cancel()
	done, connected := make(chan Connect, 1), make(chan struct{})
	go func() { done <- probe(ctx, endpoint, connected) }()
	var c Connect
	select {
	case c = <-done:
	case <-ctx.Done():
		// The conversation ends with the context by itself, on a busy machine a little later; only a path lookup that hangs in
		// the kernel does not.
		select {
		case c = <-done:
		case <-connected:
			c = <-done
		case <-time.After(closePatience):
			c = Connect{State: ConnectFailed, Err: "looking up the socket file does not come back"}
		}
	}
	c.Elapsed = time.Since(start)
	return c
}

// probe closes connected once there is a conversation.
func probe(ctx context.Context, endpoint string, connected chan<- struct{}) Connect {
	url, err := ParseEndpoint(endpoint)
	if err != nil {
		return Connect{State: ConnectFailed, Err: err.Error()}
	}
	path := strings.TrimPrefix(url, unixScheme)
	info, err := os.Stat(path)
	if err != nil {
		return failedConnect(ctx, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return Connect{State: ConnectNotSocket, Err: "is " + kindOf(info.Mode())}
	}
	conn, err := knock(ctx, path)
	if err != nil {
		return failedConnect(ctx, err)
	}
	defer conn.Close()
	close(connected)
	other, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan Connect, 2)
	go func() { answer <- greet(ctx, conn) }()
	go func() {
		if speaksTTRPC(other, path) {
			answer <- Connect{State: ConnectForeign, Err: "speaks ttrpc, not gRPC", TTRPC: true}
		}
	}()
	c := <-answer
	if cred := peerOf(conn); cred != nil {
		c.PeerPID, c.PeerUID = int(cred.Pid), int(cred.Uid)
	}
	return c
}

// knock connects. Go connects without blocking, and a full listen queue then shows as EAGAIN at once.
func knock(ctx context.Context, path string) (net.Conn, error) {
	for try := 1; ; try++ {
		conn, err := dialUnix(ctx, path)
		if err == nil || !errors.Is(err, syscall.EAGAIN) || try == backlogTries {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(backlogRetry):
		}
	}
}

// failedConnect words an error of stat(2) or connect(2).
func failedConnect(ctx context.Context, err error) Connect {
	c := Connect{State: ConnectFailed, Err: printable(systemWords(err), errLimit)}
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		c.State = ConnectMissing
	case errors.Is(err, syscall.ECONNREFUSED):
		c.State = ConnectRefused
	case errors.Is(err, fs.ErrPermission):
		c.State = ConnectDenied
	case errors.Is(err, syscall.EAGAIN):
		c.State = ConnectBacklogged
	case errors.Is(err, syscall.EPROTOTYPE):
		c.State = ConnectForeign
	case errors.Is(ctx.Err(), context.Canceled):
		c.State = ConnectCanceled
	}
	return c
}

// systemWords is the innermost error, "connection refused" instead of "dial unix /run/x.sock: connect: connection
// refused": the caller knows the rest.
func systemWords(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// greet says HTTP/2's hello and reads the answer until it is known for what it is.
func greet(ctx context.Context, conn net.Conn) Connect {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, writeErr := io.WriteString(conn, http2Hello)
	buf := make([]byte, 0, firstBytes)
	for {
		n, err := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case !maybeSettings(buf):
			return foreign(buf, "answers something that is not HTTP/2")
		case len(buf) >= frameHeader:
			return Connect{State: ConnectOK}
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && errors.Is(ctx.Err(), context.Canceled):
			return Connect{State: ConnectCanceled, Err: "interrupted before the server said anything"}
		case errors.Is(err, os.ErrDeadlineExceeded) && len(buf) == 0:
			return Connect{State: ConnectSilent, Err: "connected, and the server said nothing"}
		case errors.Is(err, os.ErrDeadlineExceeded):
			return foreign(buf, "stopped in the middle of its first frame")
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), writeErr != nil:
			return foreign(buf, "closed the connection without a word of HTTP/2")
		default:
			return Connect{State: ConnectFailed, Err: printable(systemWords(err), errLimit)}
		}
	}
}

func foreign(first []byte, err string) Connect {
	c := Connect{State: ConnectForeign, Err: err}
	if len(first) > 0 {
		c.FirstByte = strconv.QuoteToASCII(string(first[:min(len(first), foreignBytes)]))
	}
	return c
}

// maybeSettings reports whether b can be the beginning of a server's first frame, which must be SETTINGS: a length that
// is a multiple of six and at most 16 KiB, type 4, not an acknowledgement, stream 0.
func maybeSettings(b []byte) bool {
	for i, v := range b[:min(len(b), frameHeader)] {
		switch i {
		case 0:
			if v != 0 {
				return false
			}
		case 1:
			if v > 0x40 {
				return false
			}
		case 2:
			if (int(b[1])<<8|int(v))%6 != 0 {
				return false
			}
		case 3:
			if v != 4 {
				return false
			}
		case 4:
			if v&1 != 0 {
				return false
			}
		case 5:
			if v&0x7f != 0 { // the highest bit is reserved
				return false
			}
		default:
			if v != 0 {
				return false
			}
		}
	}
	return true
}

// peerOf asks the kernel who listens. For a socket that systemd opened it is systemd, pid 1.
func peerOf(conn net.Conn) *unix.Ucred {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	var cred *unix.Ucred
	err = raw.Control(func(fd uintptr) {
		cred, _ = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return nil
	}
	return cred
}
