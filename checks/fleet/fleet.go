// Package fleet reads the nodes of a cluster through its API server, and groups the sick ones by cause.
package fleet

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/checks"
)

// A Snapshot is what the API server has of the nodes at one time.
type Snapshot struct {
	// At is when the leases had been read, or all else where they could not, by the server's clock. It is that of the
	// Date of its answers, so up to a second too early.
	At    time.Time
	Nodes []Node // by name
	Pods  bool   // whether pods were read
	Cost  checks.FleetRequests
	// Problems are what could not be read, each with the reason. Nodes could, or there is no Snapshot.
	Problems []string

	reading *reading // that it is of, which Watch goes on with
}

// A Node is what is kept of a Node object, its lease, its events and its pods.
type Node struct {
	Name          string
	Created       time.Time
	Labels        map[string]string
	Unschedulable bool
	Owner         string // Kind/name of its first owner
	Info          v1.NodeSystemInfo
	Conditions    []v1.NodeCondition
	Renewed       time.Time // of its lease; zero where there is none
	Events        []checks.FleetNodeEvent
	Pods          int      // with Options.Pods
	DaemonSets    []string // namespace/name of those with a pod on it, with Options.Pods
}

// Condition returns a condition of the node; an empty one where it has none of that type.
func (n *Node) Condition(kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range n.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{}
}
