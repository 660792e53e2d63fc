package crictl

import "time"

// A ConnectState says what became of connecting to a socket, before any RPC.
type ConnectState string

// The outcomes of Probe.
const (
	ConnectOK         ConnectState = "ok"          // an HTTP/2 server answered
	ConnectMissing    ConnectState = "missing"     // no such socket
	ConnectRefused    ConnectState = "refused"     // the socket file is there and nothing listens
	ConnectDenied     ConnectState = "denied"      // this user may not open it
	ConnectNotSocket  ConnectState = "not-socket"  // a directory or another kind of file
	ConnectBacklogged ConnectState = "backlogged"  // the listen queue is full: connections are no longer accepted
	ConnectSilent     ConnectState = "silent"      // connects, but never says a word of HTTP/2
	ConnectForeign    ConnectState = "foreign"     // says something that is not HTTP/2, or hangs up
	ConnectFailed     ConnectState = "failed"      // anything else; Err says what
	ConnectCanceled   ConnectState = "interrupted" // the command ended first
)

// A Connect is what a socket did when it was knocked at: connect(2), then the HTTP/2 connection preface, as far as it
// went. A gRPC server sends its SETTINGS frame from the transport, without any handler of the runtime, so ConnectOK
// with hung RPCs means a process that runs but is deadlocked, and ConnectSilent one that does not run at all.
type Connect struct {
	State     ConnectState
	Elapsed   time.Duration // until the outcome was known
	PeerPID   int           // the process that listens (SO_PEERCRED); 0 when not known
	PeerUID   int           // its user, with PeerPID
	FirstByte string        // quoted first bytes of a foreign answer
	TTRPC     bool          // it is foreign because it speaks ttrpc, as containerd does with its shims
	Err       string        // the system's words; empty for ConnectOK
}
