package crictl

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
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
	ConnectFailed     ConnectState = "failed"      // anything else; Err says what
	ConnectCanceled   ConnectState = "interrupted" // the command ended first
)

// A Connect is what a socket did when it was probed: connect(2), then the HTTP/2 connection preface, as far as that
// went. A gRPC server sends its SETTINGS frame from the transport, without any handler of the runtime. So ConnectOK
// with hung RPCs means a process that runs and is deadlocked, and ConnectSilent one that is stopped.
type Connect struct {
	State     ConnectState
	Elapsed   time.Duration // until the outcome was known
	PeerPID   int           // the process that listens (SO_PEERCRED); 0 when not known
	PeerUID   int           // its user, with PeerPID
	FirstByte string        // quoted first bytes of a foreign answer
	TTRPC     bool          // foreign because it speaks ttrpc, as containerd does with its shims
	Err       string        // the system's error; empty for ConnectOK
}

const (
	// http2Hello is what an HTTP/2 client sends first: the connection preface and an empty SETTINGS frame.
	http2Hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	// frameHeader is the size of the header that begins every frame.
	frameHeader = 9
	// firstBytes is how much of an answer is read, and foreignBytes how much of a foreign one is shown.
	firstBytes   = 64
	foreignBytes = 16
	// backlogTries is how often to connect before a full listen queue counts: one attempt may have met a burst.
	backlogTries = 3
)

// Probe looks at a socket's file, connects, and waits for the server's first HTTP/2 frame. It makes no RPC. The
// context bounds it, or DefaultRPCTimeout if the context has no deadline: when that is reached after connecting, the
// socket is ConnectSilent.
func Probe(ctx context.Context, endpoint string) Connect {
	start := time.Now()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultRPCTimeout)
		defer cancel()
	}
	c := probe(ctx, endpoint)
	c.Elapsed = time.Since(start)
	return c
}

func probe(ctx context.Context, endpoint string) Connect {
	url, err := ParseEndpoint(endpoint)
	if err != nil {
		return Connect{State: ConnectFailed, Err: err.Error()}
	}
	path := pathOf(url)
	// The lookup of the path can hang in the kernel. What follows ends with the context.
	conn, err := deadline.RunGrace(ctx, closePatience, func(ctx context.Context) (net.Conn, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Mode().Type() != fs.ModeSocket {
			return nil, notSocketError(info.Mode())
		}
		return connect(ctx, path, backlogTries)
	})
	if err != nil {
		return failedConnect(ctx, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan Connect, 2)
	go func() { answer <- greet(ctx, conn) }()
	go func() {
		if speaksTTRPC(ctx, path) {
			answer <- Connect{State: ConnectForeign, Err: "speaks ttrpc, not gRPC", TTRPC: true}
		}
	}()
	c := <-answer
	if cred := peerOf(conn); cred != nil {
		c.PeerPID, c.PeerUID = int(cred.Pid), int(cred.Uid)
	}
	return c
}

// connect dials and tries again while the listen queue is full: Go connects without blocking, so a full queue shows
// as EAGAIN.
func connect(ctx context.Context, path string, tries int) (net.Conn, error) {
	for ; ; tries-- {
		conn, err := dialUnix(ctx, path)
		if !errors.Is(err, syscall.EAGAIN) || tries == 1 {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(backlogRetry):
		}
	}
}

// A notSocketError reports a file of another kind in the socket's place.
type notSocketError fs.FileMode

func (e notSocketError) Error() string { return "is " + kindOf(fs.FileMode(e)) }

// failedConnect sorts an error of stat(2) or connect(2).
func failedConnect(ctx context.Context, err error) Connect {
	c := Connect{State: ConnectFailed, Err: systemError(err)}
	switch {
	case errors.Is(err, deadline.ErrAbandoned):
		c.Err = "looking up the socket file does not return"
	case errors.As(err, new(notSocketError)):
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
	return printable(err.Error(), errLimit)
}

// greet sends HTTP/2's hello and reads the first frame of the answer.
func greet(ctx context.Context, conn net.Conn) Connect {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, writeErr := io.WriteString(conn, http2Hello)
	buf := make([]byte, firstBytes)
	n, err := io.ReadAtLeast(conn, buf, frameHeader)
	buf = buf[:n]
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case err == nil && isSettings(buf):
		return Connect{State: ConnectOK}
	case err == nil:
		return foreign(buf, "answers something that is not HTTP/2")
	case late && errors.Is(ctx.Err(), context.Canceled):
		return Connect{State: ConnectCanceled, Err: "interrupted before the server answered"}
	case late && n == 0:
		return Connect{State: ConnectSilent, Err: "connected, and the server sent nothing"}
	case late:
		return foreign(buf, "stopped in the middle of its first frame")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), writeErr != nil:
		return foreign(buf, "closed the connection without answering in HTTP/2")
	}
	return Connect{State: ConnectFailed, Err: systemError(err)}
}

func foreign(first []byte, err string) Connect {
	c := Connect{State: ConnectForeign, Err: err}
	if len(first) > 0 {
		c.FirstByte = strconv.QuoteToASCII(string(first[:min(len(first), foreignBytes)]))
	}
	return c
}

// isSettings reports whether b begins with the header of a server's first frame, which must be SETTINGS: a length
// that is a multiple of six and at most 16 KiB, type 4, not an acknowledgement, stream 0 with any value of the
// reserved bit.
func isSettings(b []byte) bool {
	length := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	return length%6 == 0 && length <= 16<<10 && b[3] == 4 && b[4]&1 == 0 && binary.BigEndian.Uint32(b[5:])<<1 == 0
}

// ttrpcDelay is how long a server may take to answer before it is asked whether it speaks ttrpc. A gRPC server
// answers in less.
const ttrpcDelay = 500 * time.Millisecond

// A message of ttrpc begins with four bytes of length, four of the stream, one of the type and one of flags
// (channel.go in github.com/containerd/ttrpc). The question is a request without content, for which a server has no
// service; the answer's header has the same stream and the type of a response.
const (
	ttrpcQuestion = "\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00"
	ttrpcAnswer   = "\x00\x00\x00\x01\x02" // from the fifth byte on
)

// speaksTTRPC asks in ttrpc on another connection, once the server has been silent for ttrpcDelay. containerd's
// socket for its shims takes HTTP/2's hello for the header of a message of 1.3 GB, waits for the rest of it, and so
// looks stopped.
func speaksTTRPC(ctx context.Context, path string) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(ttrpcDelay):
	}
	conn, err := dialUnix(ctx, path)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, ttrpcQuestion); err != nil {
		return false
	}
	header := make([]byte, len(ttrpcQuestion))
	_, err = io.ReadFull(conn, header)
	return err == nil && bytes.Equal(header[4:9], []byte(ttrpcAnswer))
}

// peerOf returns the process that listens. For a socket that systemd opened it is systemd, pid 1.
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
