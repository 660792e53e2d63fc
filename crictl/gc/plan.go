// Package gc chooses exited containers and dead sandboxes that may be removed, and removes them at a pace that the
// runtime can bear.
//
// Choosing is pure: Make takes the two lists, the evidence about the pods, and a function that returns when containers
// ended, and returns a Plan. A plan never removes more than the kubelet's own collector may (kuberuntime_gc.go): only
// exited containers, never the newest of a pod UID and container name, init containers and sidecars included, and a pod
// counts as gone only when the kubelet's pods, its pod directories and its static manifests all lack it. Run removes:
// it checks each candidate again right before the removal, times a small list meanwhile, and records each removal in an
// audit file on the disk before it counts it.
//
// A container is removed with its log, as by the kubelet, which looks after images and the folders of logs. Nothing is
// killed: a container that runs, or whose state is unknown, is never a candidate.
package gc

import (
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// The kinds of candidates.
const (
	KindContainer = "Container"
	KindSandbox   = "PodSandbox"
)

// Rules narrow a plan. The zero value allows everything that the kubelet would be allowed to remove.
type Rules struct {
	// Keep is how many of the newest exited instances are kept per pod UID and container name. It counts only above the
	// kubelet's own number.
	Keep      int           `json:"keep,omitempty"`
	MinAge    time.Duration `json:"minAgeNanoseconds,omitempty"` // keep containers that ended less than this ago
	Namespace string        `json:"namespace,omitempty"`         // only this namespace
	Pod       string        `json:"pod,omitempty"`               // only pods of this name, or the one with this UID
	// Labels selects pods with these labels, as listed in Node.Selected.
	Labels map[string]string `json:"labels,omitempty"`
	Limit  int               `json:"limit,omitempty"` // at most so many candidates, the oldest; 0 means all

	// IgnorePodLiveness treats every pod as gone: a pod that is only starting may lose older records of its init
	// containers, and a live pod without containers its last sandbox. It is the only rule that widens the plan.
	IgnorePodLiveness bool `json:"ignorePodLiveness,omitempty"`
}

// A Policy is how the kubelet's own collector is configured.
type Policy struct {
	// Keep is --maximum-dead-containers-per-container. 0 means unknown or 0, for which 1 is taken; below 0 the kubelet
	// removes nothing of a pod that it knows, and neither does the plan.
	Keep int
	// MinAge is --minimum-container-ttl-duration. The kubelet counts it from the creation, the plan from the end, which
	// is never sooner.
	MinAge time.Duration
}

// A Node holds the containers, sandboxes and settings of a node, the input of Make.
type Node struct {
	Sandboxes  []crictl.PodSandbox
	Containers []crictl.Container
	// Partial is set when one of the lists is incomplete. Sandboxes are then all kept: a container that was not listed
	// may be in any of them.
	Partial bool
	Pods    *Liveness // nil means that nothing is known: every pod counts as alive
	Kubelet Policy
	// Selected holds the UIDs of the pods that have Rules.Labels, which lists do not carry: the runtime is asked for
	// the sandboxes with those labels. It is ignored without Rules.Labels; nil with them selects nothing.
	Selected map[string]bool
}

// A Candidate is a container or sandbox that is to be removed.
type Candidate struct {
	Kind       string    `json:"kind"` // KindContainer or KindSandbox
	ID         string    `json:"id"`
	Namespace  string    `json:"namespace,omitempty"`
	Pod        string    `json:"pod,omitempty"`
	PodUID     string    `json:"podUID"`
	SandboxID  string    `json:"-"`                   // of containers
	Container  string    `json:"container,omitempty"` // of containers
	Attempt    uint32    `json:"attempt"`
	CreatedAt  time.Time `json:"createdAt"`
	FinishedAt time.Time `json:"finishedAt,omitzero"` // of containers
	Bytes      int64     `json:"bytes,omitempty"`     // of its entry in the runtime's list
	LogBytes   int64     `json:"logBytes,omitempty"`  // of its log and the rotations, see Logs
	Why        string    `json:"why"`
}

// A Plan lists the candidates, and counts by reason what stays.
type Plan struct {
	// Remove holds the containers first, then the sandboxes, each oldest first: the order of the removal.
	Remove []Candidate `json:"remove"`
	Keep   int         `json:"keep"` // exited containers and sandboxes that are not ready, and stay
	// Keep by reason, in the order of the rules; reasons that kept nothing are left out
	KeptBy []Kept `json:"keptBy"`
	Bytes  int64  `json:"bytes"` // of the candidates' entries in the runtime's two lists
	// LogBytes are those of the candidates' logs; 0 where they stay or their size is not known.
	LogBytes int64     `json:"logBytes"`
	Newest   int       `json:"newest"` // exited instances kept per pod UID and container name; 0 means all of them
	Rules    Rules     `json:"rules"`  // by which it was made
	MadeAt   time.Time `json:"madeAt"` // the now of Make
}

// A Kept counts what one rule kept.
type Kept struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
}

// Why something is kept, in the order in which the rules apply.
const (
	KeptNotKubelet = "not clearly a kubelet's: without a pod UID, a name or its sandbox"
	KeptClock      = "created or ended in the future: the clock was set"
	KeptNewest     = "the newest of its pod and container name"
	KeptStarting   = "of a pod that may exist and has no main container yet"
	KeptPartial    = "list incomplete: the sandbox may hold containers"
	KeptOccupied   = "sandbox with containers that are kept"
	KeptLastOfPod  = "the newest sandbox of a pod that may exist"
	KeptUnselected = "not selected"
	KeptEndUnknown = "end time unknown"
	KeptYoung      = "ended too recently (--min-age)"
	KeptLimit      = "beyond --limit"
)

// keptOrder lists all reasons in the order of the rules.
func keptOrder() []string {
	return []string{
		KeptNotKubelet, KeptClock, KeptNewest, KeptStarting, KeptPartial, KeptOccupied, KeptLastOfPod, KeptUnselected,
		KeptEndUnknown, KeptYoung, KeptLimit,
	}
}

// spareEnds is how many more ends than Rules.Limit a plan asks for: some containers may have ended too recently.
const spareEnds = 64

// Make plans the removal of exited containers and dead sandboxes. It depends on nothing but its arguments: the same
// node gives the same plan.
//
// Lists carry only the creation of a container, so Make calls ends once, with the containers that may be removed if
// they ended early enough, oldest first, for how they ended, by id. A container whose end is unknown is kept.
func Make(node Node, rules Rules, now time.Time, ends func([]Candidate) map[string]End) Plan {
	p := newPlanner(&node, rules, now)
	p.containers(ends)
	p.deadSandboxes()
	return p.finish()
}

// A Skipped is a candidate that was not removed, and why.
type Skipped struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}
