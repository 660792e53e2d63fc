// Package crictl is a CRI v1 client for a node that may be sick.
//
// Discover finds the runtime's socket and records why it chose it, Probe distinguishes the ways in which a socket can
// fail, and a Client makes the kubelet's read-only calls one at a time, each with a deadline and each measured as a
// Call. The two unfiltered lists, which can be huge on a sick node, are decoded from the wire into compact structs
// instead of the generated types.
//
// The package judges nothing: a hang, a refusal or an oversized answer is data in a Call or a Connect, not an error.
// It has no exec, attach, port forwarding, statistics and image pulls, and of the calls that change the runtime's
// state only the calls that the removal of exited containers and tests need.
package crictl

import "time"

// A Call is one RPC as it was measured from this side of the socket.
type Call struct {
	Method  string        // the RPC's short name, such as "ListContainers"
	Object  string        // id of the sandbox or container asked about; empty for calls about the whole runtime
	Start   time.Time     // when the request was handed to gRPC
	Elapsed time.Duration // until the answer was decoded, or the deadline passed
	Code    Code          // outcome; OK when the runtime answered
	Err     string        // the error of gRPC or the runtime, without the "rpc error" prefix; empty when Code is OK
	// size of the response message, or of all messages of a stream; of one refused for its size, too
	Bytes int
	Items int // containers, sandboxes, images or file systems in the response
}

// OK reports whether the runtime answered the call.
func (c Call) OK() bool { return c.Code == OK }

// Hung reports whether the call was given up at its deadline, as an unanswered call is. A call
// that was cut short by the end of the whole command has Code Canceled and is not counted as hung; neither is one
// that the runtime answered with DeadlineExceeded, which has Code Unknown.
func (c Call) Hung() bool { return c.Code == DeadlineExceeded }

// A Code is the name of a gRPC status code. The names are gRPC's own; it is a string so that packages which only
// judge and print need not import gRPC.
type Code string

// The codes that callers and this package branch on; others appear under their gRPC names.
const (
	OK                Code = "OK"
	Canceled          Code = "Canceled"
	DeadlineExceeded  Code = "DeadlineExceeded"
	NotFound          Code = "NotFound"
	PermissionDenied  Code = "PermissionDenied"
	ResourceExhausted Code = "ResourceExhausted"
	Unimplemented     Code = "Unimplemented"
	Unavailable       Code = "Unavailable"
	Internal          Code = "Internal"
	Unknown           Code = "Unknown"
)

// DefaultMessageLimit is the largest gRPC message, in bytes, that the kubelet's CRI client receives (maxMsgSize in
// cri-client), and that containerd sends by default. CRI-O sends up to 80 MiB.
const DefaultMessageLimit = 16 << 20
