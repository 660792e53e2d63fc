package crictl

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

const (
	// DefaultRPCTimeout is the deadline of one call. A healthy runtime answers every read within milliseconds.
	DefaultRPCTimeout = 5 * time.Second
	// receiveLimit, in bytes, is above every limit in the field (kubelet 16 MiB, CRI-O's server 80 MiB), so that kdiag
	// still sees a list to which the kubelet is blind. Beyond it filtered lists stand in: a message is held in memory
	// as a whole, and a sick node may not have more.
	receiveLimit = 128 << 20
	readBuffer   = 128 << 10 // bytes
)

// backlogRetry is the pause before another connect(2) while the listen queue is full.
const backlogRetry = 50 * time.Millisecond

// Options tune a Client. The zero value is good for a real node.
type Options struct {
	RPCTimeout time.Duration // deadline of one call; 0 means DefaultRPCTimeout
	// Dialer replaces the connection to the unix socket, for a runtime in this process. It is given the socket's path.
	Dialer Dialer
	// Late is called for each call that has been without an answer for half of its deadline, while it is under way.
	Late func()
}

// A Client asks one runtime. It is safe for use by several goroutines and keeps one connection, made at the first call
// and made anew when it breaks.
type Client struct {
	conn    *grpc.ClientConn
	peer    *atomic.Pointer[net.Conn] // the connection made last
	timeout time.Duration
	dial    Dialer
	late    func()
	// noStream remembers per list that the runtime answered its streaming RPC with Unimplemented.
	noSandboxStream   atomic.Bool
	noContainerStream atomic.Bool
	closed            *atomic.Bool // the connection, by whichever client
}

// Dial prepares a client for the socket at endpoint. It makes no connection: a problem of the socket shows in
// the first call. The error is an *EndpointError when endpoint is not a unix socket address.
func Dial(endpoint string, opts Options) (*Client, error) {
	c := &Client{
		timeout: cmp.Or(opts.RPCTimeout, DefaultRPCTimeout), dial: opts.Dialer, late: opts.Late,
		peer: &atomic.Pointer[net.Conn]{}, closed: &atomic.Bool{},
	}
	if c.dial == nil {
		c.dial = dialUnix
	}
	var err error
	c.conn, err = NewConn(endpoint, func(ctx context.Context, path string) (net.Conn, error) {
		conn, err := connect(ctx, c.dial, path, math.MaxInt)
		if err == nil {
			c.peer.Store(&conn)
		}
		return conn, err
	}, grpc.WithReadBufferSize(readBuffer), grpc.WithDefaultCallOptions(
		grpc.MaxCallRecvMsgSize(receiveLimit),
		grpc.ForceCodecV2(codec{}),
		grpc.WaitForReady(false), // a refused connection is an answer: Unavailable at once, not a hang
	))
	return c, err
}

// WithTimeout returns a client over the same connection whose calls have another deadline. It ends with c.
func (c *Client) WithTimeout(d time.Duration) *Client {
	return &Client{conn: c.conn, peer: c.peer, closed: c.closed, timeout: d, dial: c.dial}
}

// Follow cuts a connection to another process than pid, which is the one that listens now, unless either is not known.
// Calls that wait for the other process end with Unavailable, and the next one connects anew. A daemon that was killed
// and cannot end keeps its connections.
func (c *Client) Follow(pid int) {
	conn := c.peer.Load()
	if pid == 0 || conn == nil {
		return
	}
	if old := peerOf(*conn); old != 0 && old != pid {
		_ = (*conn).Close() // gRPC may have closed it
	}
}

// Close closes the connection. It does not wait: gRPC sends a last frame to a peer that may not read.
func (c *Client) Close() error {
	c.closed.Store(true)
	go func() { _ = c.conn.Close() }() // fails when it is closed already
	return nil
}

// connect makes one connection, and tries so often while the listen queue is full: Go connects without blocking, so a
// full queue shows as EAGAIN. For calls it is not an error but a wait: the process behind the socket has stopped
// accepting, so they must miss their deadlines as with any hung runtime.
func connect(ctx context.Context, dial Dialer, path string, tries int) (net.Conn, error) {
	for ; ; tries-- {
		conn, err := dial(ctx, path)
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
