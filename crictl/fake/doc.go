// Package fake is the embedded runtime: a real gRPC CRI v1 server whose contents, speed and misbehaviour are data.
//
// A Scenario says which pods, containers and images the runtime holds, how long each RPC takes and what goes wrong when.
// New makes a Server of it; the Server is served on any net.Listener (bufconn in tests) with Serve, or on a unix socket with
// Listen, which also plays the sockets that are missing, refused or silent. State changes are real: what RunPodSandbox and
// CreateContainer make is listed, started, stopped, removed and reported in container events afterwards, so crictl
// and a kubelet work against it.
//
// It models what a CRI client can see. It leaves out everything behind that: no process runs, no image is downloaded, and all
// that is written to the disk are the logs of containers that clients make, which stay empty. Exec, Attach and PortForward
// say so.
//
// Sandboxes and containers of a scenario have the same ids in every run; their ages are counted from New. All waiting is
// done on real timers and channels, so that a Server made inside a testing/synctest bubble runs on the bubble's clock.
package fake
