package crictl

import (
	"context"
	"encoding/binary"
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

	"github.com/kdiag/kdiag/crictl/deadline"
)

// A ConnectState is the outcome of Probe.
type ConnectState string

// The outcomes of Probe.
const (
	ConnectOK         ConnectState = "ok"          // an HTTP/2 server answered
	ConnectMissing    ConnectState = "missing"     // no such socket
	ConnectRefused    ConnectState = "refused"     // the socket file is there and nothing listens
	ConnectDenied     ConnectState = "denied"      // this user may not open it
	ConnectNotSocket  ConnectState = "not-socket"  // a directory or another kind of file
	ConnectBacklogged ConnectState = "backlogged"  // the listen queue is full: connections are no longer accepted
	ConnectSilent     ConnectState = "silent"      // connects, but never sends a byte
	ConnectForeign    ConnectState = "foreign"     // sends something that is not HTTP/2, or hangs up
	ConnectFailed     ConnectState = "failed"      // anything else; Err has the reason
	ConnectCanceled   ConnectState = "interrupted" // the command ended first
)

// A Connect is the result of probing a socket: connect(2), then the HTTP/2 connection preface. A gRPC server sends its
// SETTINGS frame from the transport, without any handler of the runtime. So ConnectOK with hung RPCs means a process
// that runs and is deadlocked, and ConnectSilent one that is stopped.
type Connect struct {
	State     ConnectState
	Elapsed   time.Duration // until the outcome was known
	PeerPID   int           // the process that listens (SO_PEERCRED); 0 when not known
	FirstByte string        // quoted first bytes of a foreign answer
	TTRPC     bool          // foreign because it is containerd's socket for its shims, which speak ttrpc
	Err       string        // the system's error; empty for ConnectOK
}

const (
	// http2Hello is the first data of an HTTP/2 client: the connection preface and an empty SETTINGS frame.
	http2Hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	// frameHeader is the size of the header that begins every frame.
	frameHeader = 9
	// firstBytes is how much of an answer is read, and shown where it is not HTTP/2.
	firstBytes = 16
	// ttrpcSuffix is appended by containerd to the name of its socket for the one that its shims use. That one takes
	// HTTP/2's hello for the header of a message of 1.3 GB, waits for the rest of it, and so would look stopped.
	ttrpcSuffix = ".ttrpc"
	// backlogTries is how often to connect before a full listen queue counts: one attempt may have met a burst.
	backlogTries = 3
	// probeGrace is for the end of a connect(2) that the deadline interrupts.
	probeGrace = 250 * time.Millisecond
)

// Probe looks at a socket's file, connects, and waits for the server's first HTTP/2 frame. It makes no RPC. The
// context, which must have a deadline, bounds it: when that is reached after connecting, the socket is ConnectSilent.
func Probe(ctx context.Context, endpoint string) Connect { return Dialer(nil).Probe(ctx, endpoint) }

// Probe is the function Probe where dial is nil. Else there is no file to look at.
func (dial Dialer) Probe(ctx context.Context, endpoint string) (c Connect) {
	start := time.Now()
	defer func() { c.Elapsed = time.Since(start) }()
	url, err := ParseEndpoint(endpoint)
	if err != nil {
		return Connect{State: ConnectFailed, Err: err.Error()}
	}
	path := pathOf(url)
	// The lookup of the path can hang in the kernel. All that follows ends with the context.
	conn, err := deadline.RunGrace(ctx, "connecting to "+path, probeGrace, func(ctx context.Context) (net.Conn, error) {
		if dial != nil {
			return dial(ctx, path)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Mode().Type() != fs.ModeSocket {
			return nil, errNotSocket
		}
		return connect(ctx, dialUnix, path, backlogTries)
	})
	if err != nil {
		return failedConnect(ctx, err)
	}
	defer conn.Close()
	if strings.HasSuffix(path, ttrpcSuffix) {
		c = Connect{State: ConnectForeign, Err: "speaks ttrpc, not gRPC", TTRPC: true}
	} else {
		c = greet(ctx, conn)
	}
	c.PeerPID = peerOf(conn)
	return c
}

var errNotSocket = errors.New("it is another kind of file")

// failedConnect sorts an error of stat(2) or connect(2).
func failedConnect(ctx context.Context, err error) Connect {
	c := Connect{State: ConnectFailed, Err: systemError(err)}
	switch {
	case errors.Is(err, deadline.ErrAbandoned):
		c.Err = "looking up the socket file does not return"
	case errors.Is(err, errNotSocket):
		c.State = ConnectNotSocket
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

// systemError returns the innermost error, "connection refused" instead of "dial unix /run/x.sock: connect: connection
// refused": the caller knows the rest.
func systemError(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return printable(err.Error())
}

// greet sends HTTP/2's hello and reads the first frame of the answer.
func greet(ctx context.Context, conn net.Conn) Connect {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = io.WriteString(conn, http2Hello) // an error shows in the read
	buf := make([]byte, firstBytes)
	n, err := io.ReadAtLeast(conn, buf, frameHeader)
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case err == nil && isSettings(buf):
		return Connect{State: ConnectOK}
	case late && errors.Is(ctx.Err(), context.Canceled):
		return Connect{State: ConnectCanceled, Err: "interrupted before the server answered"}
	case late && n == 0:
		return Connect{State: ConnectSilent, Err: "connected, and the server sent nothing"}
	}
	c := Connect{State: ConnectForeign, Err: "does not answer in HTTP/2"}
	if n > 0 {
		c.FirstByte = strconv.QuoteToASCII(string(buf[:n]))
	}
	return c
}

// SocketID identifies a socket's file, which a daemon that starts makes anew. It is 0 when it cannot be looked up.
func SocketID(ctx context.Context, endpoint string) uint64 {
	url, _ := ParseEndpoint(endpoint) // an unparsable endpoint has no socket file
	id, _ := deadline.Run(ctx, "looking up "+pathOf(url), func(context.Context) (uint64, error) {
		var s unix.Stat_t
		err := unix.Stat(pathOf(url), &s)
		return s.Ino ^ uint64(s.Ctim.Nano()), err // the number alone may be given again
	})
	return id
}

// isSettings reports whether b begins with the header of a server's first frame, which must be SETTINGS: a length
// that is a multiple of six and at most 16 KiB, type 4, not an acknowledgement, stream 0 with any value of the
// reserved bit.
func isSettings(b []byte) bool {
	length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	return length%6 == 0 && length <= 16<<10 && b[3] == 4 && b[4]&1 == 0 && binary.BigEndian.Uint32(b[5:])<<1 == 0
}

// peerOf returns the process that listens; 0 when not known. For a socket that systemd opened it is systemd, pid 1.
func peerOf(conn net.Conn) (pid int) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		pid = peerPID(int(fd))
	})
	return pid
}
