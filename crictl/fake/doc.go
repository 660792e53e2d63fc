// Package fake is the embedded runtime: a real gRPC CRI v1 server whose contents, speed and faults are data.
//
// A Scenario lists the pods, containers and images of the runtime, the latency of each RPC, and the faults over time.
// New makes a Server of it. Serve runs the Server on any net.Listener (bufconn in tests), and Listen on a unix
// socket, or with a socket that refuses connections. State changes are real:
// sandboxes and containers that clients create are listed, started, stopped, removed and reported in container
// events, so crictl and a kubelet work against it.
//
// It models the CRI API and nothing behind it: no process runs, no image is downloaded, and only the
// log files of containers created by clients are written, empty. Exec, Attach, PortForward, checkpoints, metrics,
// updates of resources, reopening of logs and the statistics of single objects and of pods are unimplemented.
//
// Sandboxes and containers of a scenario have the same ids in every run; their ages count from New. All waiting uses
// timers and channels, so a Server made inside a testing/synctest bubble runs on the bubble's clock.
package fake
