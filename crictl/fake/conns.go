package fake

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// A trackedListener keeps its connections so that they can be cut: the one of a call, or all of them. gRPC itself waits
// two minutes for the first bytes of a connection, even when it is stopped.
type trackedListener struct {
	net.Listener
	mu   sync.Mutex
	open map[*trackedConn]struct{} // nil after Close
}

type trackedConn struct {
	net.Conn
	listener *trackedListener
}

// trackedAddr is the peer's address as gRPC passes it to a handler, with the connection.
type trackedAddr struct {
	net.Addr
	conn *trackedConn
}

// Track returns a listener for a gRPC server whose Close also closes the connections, and which makes Drop possible.
func Track(lis net.Listener) net.Listener {
	return &trackedListener{Listener: lis, open: map[*trackedConn]struct{}{}}
}

// Drop closes the connection of the call with that server context, and returns the error for the call.
func Drop(ctx context.Context) error {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(trackedAddr); ok {
			_ = addr.conn.Close() // the peer may have hung up before
		}
	}
	return status.Error(codes.Unavailable, "the connection was cut")
}

// Accept waits for the next connection.
func (l *trackedListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &trackedConn{Conn: raw, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	l.open[conn] = struct{}{}
	return conn, nil
}

// Close closes the listener and its connections.
func (l *trackedListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.open {
		_ = conn.Conn.Close() // the peer may have hung up before
	}
	l.open = nil
	return l.Listener.Close()
}

// RemoteAddr returns the peer's address.
func (c *trackedConn) RemoteAddr() net.Addr { return trackedAddr{c.Conn.RemoteAddr(), c} }

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
