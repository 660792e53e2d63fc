// Package nodestatus models how a kubelet judges its runtime and tells the cluster about its node: the runtime state
// with its 30 s clock, the node's conditions, registration, heartbeat and lease. Without an API server the node is
// computed and kept all the same. Left out: cloud providers, device plugins, huge pages, swap, runtime handlers and
// features, volumes in use, and addresses beyond one and a host name.
package nodestatus
