// Package plegbench makes the calls of the kubelet's PLEG from outside, and computes how long a relist takes.
//
// Measure probes the socket, makes every read-only RPC once, times several relists (ListPodSandbox, then
// ListContainers, unfiltered, as pleg/generic.go makes them) and then asks for the status of sandboxes and containers
// one by one, a few at a time, each with its own deadline. Summarize is the arithmetic over that: percentiles, and the
// duration of the kubelet's own relist, which is serial and waits two minutes for a call that hangs. Where the time was
// too short to ask about all, those asked are a random sample, and the duration has a range.
//
// A Monitor measures again and again for a service: its calls are spread over minutes, and a call that hangs is not
// repeated.
//
// The package judges nothing and prints nothing. It compares with a threshold only to end a sweep early.
package plegbench

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// The kubelet's constants with which a relist is compared, from pkg/kubelet/kubelet.go and its default configuration.
const (
	RelistPeriod           = time.Second      // pause after a relist before the next
	RelistThreshold        = 3 * time.Minute  // PLEG is unhealthy when the last successful relist started longer ago
	EventedRelistPeriod    = 5 * time.Minute  // the pause with the feature gate EventedPLEG until 1.36
	EventedRelistThreshold = 10 * time.Minute // the threshold with it
	RequestTimeout         = 2 * time.Minute  // runtimeRequestTimeout, the deadline of one status or list call
)

// A Measurement is everything that was measured of a runtime, without a verdict. Parts that were not reached, because
// the runtime did not answer or the time was up, are nil or empty.
type Measurement struct {
	Started time.Time
	Ended   time.Time

	Connect crictl.Connect  // the socket itself
	Version *crictl.Version // nil when Version was not answered
	Status  *crictl.Status  // nil when Status was not answered

	// Probes holds one Call for each RPC made once, in parallel, each with the RPC deadline: Version, Status,
	// ListPodSandbox, ListContainers, ListImages, ImageFsInfo.
	Probes []crictl.Call

	Samples []Sample // relists in the order made; the first is the pair of lists among Probes

	// Liveness are further Version calls, made when lists or status calls had been unanswered for a second, to
	// distinguish a stopped runtime from one that hangs on some of its objects. Empty when nothing stalled.
	Liveness []crictl.Call

	// Sandboxes and Containers are the newest lists that arrived; nil when none did. When the runtime refuses the list
	// that the kubelet asks for, they come from streams or filtered lists.
	Sandboxes  *crictl.PodSandboxList
	Containers *crictl.ContainerList

	// ChangedPods are the UIDs, sorted, of pods of which a sandbox or container came, went or changed state between the
	// first and the last whole sample: those that a kubelet would have inspected. In a series longer than a relist
	// period they are those of its last second or two.
	ChangedPods []string

	Sweep Sweep

	// Interrupted is why the measurement ended before it was complete: the command's deadline or a signal. Empty when
	// it is complete.
	Interrupted string
}

// Stopped reports whether the runtime answered at first and then nothing any more: Version too was not answered when
// it was called again.
func (m *Measurement) Stopped() bool {
	return len(m.Liveness) > 0 && m.Liveness[len(m.Liveness)-1].Hung() && slices.ContainsFunc(m.Probes, answered)
}

// Answered reports whether no call hung, and all but those about objects, which may be gone or broken, succeeded.
func (m *Measurement) Answered() bool {
	return m != nil && m.Connect.State == crictl.ConnectOK &&
		!slices.ContainsFunc(m.Probes, func(c crictl.Call) bool { return c.Hung() || failed(c) }) &&
		!slices.ContainsFunc(m.Samples, func(s Sample) bool { return !s.OK() }) &&
		!slices.ContainsFunc(m.Sweep.Inspections, func(i Inspection) bool { return i.Call.Hung() })
}

// A Sample is one relist: both lists, one after the other. The two lists of the first sample were requested in
// parallel.
type Sample struct {
	At         time.Time
	Sandboxes  crictl.Call
	Containers crictl.Call // zero when the sandbox list failed, as in the kubelet
	Mode       crictl.ListMode
}

// OK reports whether both lists were answered.
func (s Sample) OK() bool { return s.Sandboxes.OK() && s.Containers.OK() }

// Elapsed is the time that both lists took.
func (s Sample) Elapsed() time.Duration { return s.Sandboxes.Elapsed + s.Containers.Elapsed }

// A Sweep is the round of status calls over sandboxes and containers.
type Sweep struct {
	Total       int          // sandboxes and containers known
	Inspections []Inspection // those asked, by kind and the newest first; they were asked in random order
	Reach       string       // how far it went and why it stopped: "all 214", or "1800 of 20450: " and the reason
}

// An Inspection is one PodSandboxStatus or ContainerStatus call and its object.
type Inspection struct {
	Kind      string // "PodSandbox" or "Container"
	ID        string
	SandboxID string // of a container; equal to ID for a sandbox
	Name      string // the container's name; empty for a sandbox
	Pod       crictl.Pod
	State     string // as listed: running, exited, ready, ...; "hinted" when the list did not answer
	Call      crictl.Call
}

// A Hint is a container or sandbox that was found on the host. When a list hangs, only hints can be inspected.
type Hint struct {
	Kind string // "PodSandbox" or "Container"
	ID   string
	Name string
	Pod  crictl.Pod
}

// Progress is the state of a measurement, for Options.Progress.
type Progress struct {
	Phase string // "connect", "probe", "relist", "inspect"
	Done  int
	Total int // 0 when not known
	Hung  int // calls so far without an answer

	Waiting *Inspection // of those that wait longer than usual, the first; nil without one
}
