// Package pleg is the pod lifecycle event generator. It finds changes of the pods in the runtime, by listing all of
// them each second (Generic) or from the runtime's events (Evented), keeps each pod's status in a Cache, and sends an
// Event for each change to the syncLoop.
//
// It follows pkg/kubelet/pleg and pkg/kubelet/container/cache.go. A slow or hung relist delays the cache, and pod
// workers wait for the cache without a deadline: this is how a runtime stops a node.
package pleg

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// An EventType is the type of a change of a container or sandbox.
type EventType string

// The types of events.
const (
	ContainerStarted EventType = "ContainerStarted"
	ContainerDied    EventType = "ContainerDied"
	ContainerRemoved EventType = "ContainerRemoved"
	ContainerChanged EventType = "ContainerChanged" // to an unknown state; never sent
	PodSync          EventType = "PodSync"          // after a requested inspection without changes
)

// An Event is a change that the syncLoop has to act on.
type Event struct {
	ID   types.UID // of the pod
	Type EventType
	Data string // id of the container or sandbox; empty for PodSync
}

// A Runtime lists and inspects pods.
type Runtime interface {
	// GetPods lists all pods, or only what runs of them.
	GetPods(ctx context.Context, all bool) ([]*container.Pod, error)
	// GetPod lists one pod. It is an error if the runtime does not have it.
	GetPod(ctx context.Context, uid types.UID) (*container.Pod, error)
	// GetPodStatus inspects each sandbox and container of a listed pod.
	GetPodStatus(ctx context.Context, pod *container.Pod) (*container.PodStatus, error)
}

// A Snapshot is the state of a Generic. Taking one never waits for a relist.
type Snapshot struct {
	LastRelist      time.Time     // start of the last relist whose lists succeeded; zero before the first
	Duration        time.Duration // of the last relist that ended, inspections included
	InProgressSince time.Time     // start of the relist under way; zero while there is none
	Relists         int           // ended, failed ones too
	Failures        int           // ended without lists
	Pods            int           // listed last
	Containers      int           // listed last, without sandboxes
	Uninspected     int           // pods whose last inspection failed, or that are marked to be inspected again
	Queued          int           // events that the syncLoop has not taken yet
	Discarded       int           // events lost because the channel was full
}
