package gc

import (
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// The kinds of victims.
const (
	KindContainer = "Container"
	KindSandbox   = "PodSandbox"
)

// Rules narrow what may be removed. The zero value removes what the kubelet would be allowed to.
type Rules struct {
	Keep      int               `json:"keep,omitempty"`                 // newest exited instances kept per pod UID and container name; counts only above the kubelet's own number
	MinAge    time.Duration     `json:"minAgeNanoseconds,omitempty"`    // nothing that ended less than this ago
	OlderThan time.Duration     `json:"olderThanNanoseconds,omitempty"` // only what ended more than this ago
	Namespace string            `json:"namespace,omitempty"`            // only this namespace
	Pod       string            `json:"pod,omitempty"`                  // only pods of this name, or the one with this UID
	Labels    map[string]string `json:"labels,omitempty"`               // only pods with these labels; Node.Selected says which those are
	Limit     int               `json:"limit,omitempty"`                // at most so many victims, the oldest; 0 means all

	// IgnorePodLiveness treats every pod as gone: a pod that is only starting may lose older records of its init
	// containers, and a live pod without containers its last sandbox. It is the one rule that widens.
	IgnorePodLiveness bool `json:"ignorePodLiveness,omitempty"`
}

// A Policy is what the kubelet's own collector is set to.
type Policy struct {
	// Keep is --maximum-dead-containers-per-container. 0 means unknown or 0, for which 1 is taken; below 0 the kubelet
	// removes nothing of a pod that it knows, and neither does the plan.
	Keep int
	// MinAge is --minimum-container-ttl-duration. The kubelet counts it from the creation, the plan from the end, which
	// is never sooner.
	MinAge time.Duration
}

// A Node is what was seen of a node, the input of Make.
type Node struct {
	Sandboxes  []crictl.PodSandbox
	Containers []crictl.Container
	// Partial is set when one of the lists is not complete. Sandboxes are then all kept: a container that was not listed
	// may be in any of them.
	Partial bool
	// Finished tells when a container ended, from ContainerStatus: lists carry the creation only. A container whose end
	// is not known is kept. Candidates says for which it needs to be known.
	Finished func(id string) (time.Time, bool)
	Pods     *Liveness // nil means that nothing is known: every pod counts as alive
	Kubelet  Policy
	// Selected holds the UIDs of the pods that have Rules.Labels, which lists do not carry: the runtime is asked for the
	// sandboxes with those labels. Not looked at without Rules.Labels; nil with them selects nothing.
	Selected map[string]bool
}

// A Victim is a container or sandbox that is to be removed.
type Victim struct {
	Kind       string    `json:"kind"` // KindContainer or KindSandbox
	ID         string    `json:"id"`
	Namespace  string    `json:"namespace,omitempty"`
	Pod        string    `json:"pod,omitempty"`
	PodUID     string    `json:"podUID"`
	Container  string    `json:"container,omitempty"` // of containers
	Attempt    uint32    `json:"attempt"`
	CreatedAt  time.Time `json:"createdAt"`
	FinishedAt time.Time `json:"finishedAt,omitzero"` // of containers
	Bytes      int64     `json:"bytes,omitempty"`     // that it takes in the runtime's list
	Why        string    `json:"why"`
}

// A Plan says what is to be removed, and why the rest stays.
type Plan struct {
	// Remove holds the containers first, then the sandboxes, each oldest first: the order of the removal.
	Remove []Victim  `json:"remove"`
	Keep   int       `json:"keep"`   // exited containers and sandboxes that are not ready, and stay
	KeptBy []Kept    `json:"keptBy"` // Keep by reason, in the order of the rules; reasons that kept nothing are left out
	Bytes  int64     `json:"bytes"`  // that the victims take in the runtime's two lists
	Newest int       `json:"newest"` // exited instances kept per pod UID and container name; 0 means all of them
	Rules  Rules     `json:"rules"`  // by which it was made
	MadeAt time.Time `json:"madeAt"` // the now of Make
}

// A Kept counts what one rule kept.
type Kept struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
}

// Why something is kept, in the order in which the rules are asked.
const (
	KeptForeign    = "not clearly a kubelet's: without a pod UID, a name or its sandbox, or listed twice"
	KeptClock      = "made or ended in the future: the clock was set"
	KeptNewest     = "among the newest of its pod and container name"
	KeptStarting   = "of a pod that is not known to be gone and shows no main container yet"
	KeptPartial    = "the list was not complete, so the sandbox may hold containers"
	KeptOccupied   = "sandbox with containers that stay"
	KeptLastOfPod  = "the newest sandbox of a pod that is not known to be gone"
	KeptUnselected = "not selected"
	KeptEndUnknown = "when it ended is not known"
	KeptYoung      = "ended too short a time ago"
	KeptLimit      = "beyond the limit of this run"
)

// keptOrder lists all reasons in the order of the rules.
func keptOrder() []string {
	return []string{
		KeptForeign, KeptClock, KeptNewest, KeptStarting, KeptPartial, KeptOccupied, KeptLastOfPod, KeptUnselected,
		KeptEndUnknown, KeptYoung, KeptLimit,
	}
}

// NoPlan is the plan for a node that could not be looked at. A Report leaves it out.
func NoPlan() Plan { return Plan{} }

// Make says what may be removed of a node. It depends on nothing but its arguments: the same node gives the same plan.
func Make(node Node, rules Rules, now time.Time) Plan {
	p := newPlanner(&node, rules, now)
	p.containers()
	p.sandboxes()
	return p.finish()
}

// Candidates returns the containers whose end decides whether they go, oldest first: ask ContainerStatus for
// them, and give the answers as Node.Finished. Only candidates can become victims.
func Candidates(node Node, rules Rules, now time.Time) []Candidate {
	rules.Limit = 0
	p := newPlanner(&node, rules, now)
	p.assumeEnded = true
	p.containers()
	ask := make([]Candidate, 0, len(p.plan.Remove))
	for i := range p.plan.Remove {
		ask = append(ask, Candidate{ID: p.plan.Remove[i].ID, PodUID: p.plan.Remove[i].PodUID})
	}
	return ask
}
