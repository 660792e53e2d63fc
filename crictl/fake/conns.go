package fake

import (
	"net"
	"sync"
)

// conns keeps the connections of a server, so that Stop can end those that never spoke: gRPC waits two minutes for the first
// bytes of each, also when it is stopped.
type conns struct {
	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

// A trackedListener hands its connections to conns.
type trackedListener struct {
	net.Listener
	conns *conns
}

type trackedConn struct {
	net.Conn
	conns *conns
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

// add keeps a connection, and reports whether the server still runs.
func (c *conns) add(conn *trackedConn) bool {
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

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.conns.mu.Lock()
	delete(c.conns.open, c)
	c.conns.mu.Unlock()
	return c.Conn.Close()
}

// close closes all connections, those to come included.
func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Conn.Close() // the peer may have hung up before
	}
}
