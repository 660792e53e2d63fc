package fake

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/peer"
)

// Conns keeps the connections of a gRPC server so that they can be cut: the one of a call, or all of them. gRPC
// itself waits two minutes for the first bytes of a connection, even when it is stopped. The zero Conns is ready.
type Conns struct {
	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

// A trackedListener hands its connections to a Conns.
type trackedListener struct {
	net.Listener
	conns *Conns
}

type trackedConn struct {
	net.Conn
	conns *Conns
}

// trackedAddr is the peer's address as gRPC shows it to a handler, with the way back to the connection.
type trackedAddr struct {
	net.Addr
	conn *trackedConn
}

// Track returns a listener whose connections are kept.
func (c *Conns) Track(lis net.Listener) net.Listener {
	return &trackedListener{Listener: lis, conns: c}
}

// CutCall closes the connection on which the call with that server context came, if it is a tracked one.
func CutCall(ctx context.Context) {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(trackedAddr); ok {
			_ = addr.conn.Close() // the peer may have hung up before
		}
	}
}

// Accept waits for the next connection.
func (l *trackedListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &trackedConn{Conn: raw, conns: l.conns}
	if !l.conns.add(conn) {
		_ = raw.Close() // the server has stopped; gRPC sees a connection that is closed
	}
	return conn, nil
}

// add keeps a connection, and reports whether connections are accepted.
func (c *Conns) add(conn *trackedConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.open == nil {
		c.open = map[*trackedConn]struct{}{}
	}
	c.open[conn] = struct{}{}
	return true
}

// RemoteAddr returns the peer's address.
func (c *trackedConn) RemoteAddr() net.Addr { return trackedAddr{c.Conn.RemoteAddr(), c} }

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.conns.mu.Lock()
	delete(c.conns.open, c)
	c.conns.mu.Unlock()
	return c.Conn.Close()
}

// Close closes all connections, and new ones until Reopen.
func (c *Conns) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Conn.Close() // the peer may have hung up before
	}
}

// Reopen accepts connections again after Close.
func (c *Conns) Reopen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = false
}
