package reproduce

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl/fake"
)

// A Scenario is an incident as data. All its times are at a kubelet's own pace; a run shortens them with the
// kubelet's periods.
type Scenario struct {
	Name    string
	Summary string // one line: what goes wrong
	Cause   string // cause code of kdiag pleg; empty for healthy

	// What goes wrong, at the proxy between the syncLoop and the runtime.
	Faults     []fake.Fault
	Latency    []fake.Latency
	Conditions []fake.Condition // that Status answers instead of the runtime's own
	Down       bool             // the socket refuses connections

	Steps []Step        // what happens besides, counted from the fault
	Hold  time.Duration // how long the fault stays
	Times int           // how often the fault comes; 0 means once
	Pause time.Duration // between the times

	NotReady string // part of the Ready condition's message; empty if the node must stay Ready
	Why      string // why the node turns NotReady, or does not
	MinPods  int    // fewer do not show it; 0 means 2
}

// A Step is something that happens to the pods.
type Step struct {
	At  time.Duration // after the fault
	Do  Action
	Pod int // for Die: its number
}

// An Action is what a Step does. It is done at the runtime itself, past the proxy: containers die whether or not
// anything works.
type Action string

// The actions.
const (
	Die    Action = "die"     // the pod's container is killed
	DieAll Action = "die-all" // every pod's
	Add    Action = "add"     // one more pod is wanted
	Flood  Action = "flood"   // many containers of a pod exit
)

const (
	second = fake.Duration(time.Second)
	// namespace, pods and their container, as in the manifests that a run writes.
	namespace = "reproduce"
	appName   = "app"
)

// Names lists the scenarios in the order in which they are shown to a person.
func Names() []string { return fake.Names() }

// Find returns the scenario of that name, and whether there is one. The caller owns the result.
func Find(name string) (Scenario, bool) {
	shown, ok := fake.Builtin(name)
	if !ok {
		return Scenario{}, false
	}
	all := slices.Concat(whole(), parts(), slow())
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	s := all[i]
	s.Cause = shown.Cause
	return s, true
}

// whole are the scenarios in which the runtime as a whole is away, or reports that it is not ready.
func whole() []Scenario {
	const down = "container runtime is down"
	hang := []fake.Fault{{RPC: "*", Hang: true}}
	return []Scenario{
		{
			Name: "healthy", Summary: "nothing is wrong; a container dies", Hold: time.Minute,
			Steps: []Step{{At: 5 * time.Second, Do: Die, Pod: 1}},
			Why:   "the next relist notices the dead container, within a second or so, and its pod worker starts it again",
		},
		{
			Name: "runtime-down", Summary: "nothing listens on the socket", Down: true, Hold: 210 * time.Second,
			Steps: []Step{{At: time.Second, Do: Die, Pod: 1}}, NotReady: down,
			Why: "calls fail at once; 30s after the last good Status the runtime counts as down, after 3m PLEG joins in",
		},
		{
			Name: "runtime-hung", Summary: "the socket accepts connections and no call is answered", Faults: hang, Hold: 4 * time.Minute,
			Steps: []Step{{At: time.Second, Do: Die, Pod: 1}}, NotReady: down,
			Why: "nothing shows until the first calls reach their deadline of 2m: housekeeping holds the loop and the node's status " +
				"waits for Version; the runtime has been down since 30s by then, and after 3m PLEG joins in",
		},
		{
			Name: "runtime-not-ready", Summary: "the runtime says RuntimeReady=false", Hold: time.Minute,
			Conditions: []fake.Condition{
				{Type: "RuntimeReady", Reason: "RuntimeNotReady", Message: "the storage backend is being recovered: 3 of 41 snapshots left"},
				{Type: "NetworkReady", Status: true},
			},
			Steps: []Step{{At: 10 * time.Second, Do: Die, Pod: 1}}, NotReady: "container runtime not ready: RuntimeReady=false",
			Why: "the loop stands still by the runtime's own word, though every call is answered; after 30s it counts as down as well",
		},
		{
			Name: "network-not-ready", Summary: "the runtime says NetworkReady=false", Hold: time.Minute,
			Conditions: []fake.Condition{
				{Type: "RuntimeReady", Status: true},
				{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "Network plugin returns error: cni plugin not initialized"},
			},
			Steps: []Step{{At: 10 * time.Second, Do: Die, Pod: 1}}, NotReady: "container runtime network not ready: NetworkReady=false",
			Why: "the loop goes on, and pods on the host's network with it; only the node's condition changes",
		},
		{
			Name: "flapping", Summary: "the runtime is frozen again and again", Faults: hang,
			Hold: 165 * time.Second, Times: 2, Pause: 90 * time.Second, NotReady: down,
			Why: "each freeze of more than 2m ends calls by their deadline; what is shorter goes unseen",
		},
	}
}

// parts are those in which some calls, or the calls about some object, fail.
func parts() []Scenario {
	const stale = "PLEG is not healthy: pleg was last seen active"
	ofApp := fake.Object{Namespace: namespace, Pod: podName(0) + "-*", Container: appName}
	ofSandbox := fake.Object{Namespace: namespace, Pod: podName(0) + "-*", Sandbox: true}
	inspected := []Step{{At: time.Second, Do: Die, Pod: 0}, {At: 40 * time.Second, Do: Die, Pod: 1}}
	const oneOnly = "a relist counts from its lists, which are answered, and gives each hung inspection up after 2m, before PLEG's 3m are over. " +
		"Two such pods would make the node NotReady; one only makes the news of all other pods minutes old"
	return []Scenario{
		{
			Name: "cni-hung", Summary: "a CNI plugin hangs, and with it Status and the start of sandboxes", Hold: 200 * time.Second,
			Faults: []fake.Fault{{RPC: "Status", Hang: true}, {RPC: "RunPodSandbox", Hang: true}, {RPC: "StopPodSandbox", Hang: true}},
			Steps:  []Step{{At: time.Second, Do: Add}}, NotReady: "container runtime is down",
			Why: "relists go on and PLEG is healthy to the end, but without a good Status for 30s the runtime counts as down and the loop stands still",
		},
		{
			Name: "list-hang", Summary: "ListContainers hangs, ListPodSandbox answers", Hold: 4 * time.Minute,
			Faults: []fake.Fault{{RPC: "ListContainers", Hang: true}, {RPC: "StreamContainers", Hang: true}},
			Steps:  []Step{{At: time.Second, Do: Die, Pod: 1}}, NotReady: stale,
			Why: "Status is answered, so the runtime never counts as down: after 3m without a relist PLEG alone makes the node NotReady",
		},
		{
			Name: "inspect-hang", Summary: "the status of one container hangs, everything else answers", Hold: 5 * time.Minute,
			Faults: []fake.Fault{{RPC: "*", Hang: true, Object: ofApp}}, Steps: inspected, Why: oneOnly,
		},
		{
			Name: "sandbox-hang", Summary: "the status of one sandbox hangs, everything else answers", Hold: 5 * time.Minute,
			Faults: []fake.Fault{{RPC: "*", Hang: true, Object: ofSandbox}}, Steps: inspected, Why: oneOnly,
		},
		{
			Name: "image-service-hung", Summary: "image calls hang, the rest answers; a new pod needs its image", Hold: 150 * time.Second,
			Faults: []fake.Fault{{RPC: "*Image*", Hang: true}}, Steps: []Step{{At: time.Second, Do: Add}},
			Why: "no condition of the node looks at images: the new pod waits, and everything else goes on",
		},
		{
			Name: "exited-flood", Summary: "a pod leaves many exited containers behind", Hold: time.Minute, Steps: []Step{{Do: Flood}},
			Why: "each relist carries every dead container until it is collected, all but the newest of each name; as many as here cost little",
		},
		{
			Name: "list-too-large", Summary: "the list of containers is over gRPC's limit of 16 MiB", Hold: 210 * time.Second,
			Faults: []fake.Fault{
				{RPC: "ListContainers", Error: tooLarge}, {RPC: "StreamContainers", Error: tooLarge},
			},
			Steps: []Step{{At: time.Second, Do: Die, Pod: 1}}, NotReady: stale,
			Why: "every relist fails at once, and after 3m without one PLEG makes the node NotReady; nothing hangs, and Status is fine",
		},
	}
}

// tooLarge is gRPC's error for an answer of containerd over the limit.
const tooLarge = "ResourceExhausted: grpc: trying to send message larger than max (17196646 vs. 16777216)"

// slow are those in which everything is answered.
func slow() []Scenario {
	const stale = "PLEG is not healthy: pleg was last seen active"
	return []Scenario{
		{
			Name: "runtime-slow", Summary: "every call is answered, lists after 70s", Hold: 6 * time.Minute,
			Latency: []fake.Latency{
				{RPC: "List*", Base: 70 * second}, {RPC: "Stream*", Base: 70 * second}, {RPC: "*", Base: 3 * second / 2},
			},
			Steps: []Step{{At: 5 * time.Second, Do: Die, Pod: 1}}, NotReady: stale,
			Why: "two lists take 140s, so between two relists more than 3m pass: PLEG flaps, and no call ever reaches its deadline",
		},
		{
			// A relist may come between the deaths, most of all when periods are short. Either it has more than two
			// pods to inspect, one and a half minutes each, or the next one has at least four.
			Name: "relist-overloaded", Summary: "all pods change at once, and each status takes 45s", Hold: 7 * time.Minute, MinPods: 6,
			Latency: []fake.Latency{{RPC: "ContainerStatus", Base: 45 * second}, {RPC: "PodSandboxStatus", Base: 45 * second}},
			Steps:   []Step{{At: time.Second, Do: DieAll}}, NotReady: stale,
			Why: "a relist inspects changed pods one after the other; together that takes longer than 3m, though nothing hangs",
		},
	}
}

// faster returns the scenario's faults and latencies with their times shortened by a factor.
func (s *Scenario) faster(factor float64) ([]fake.Fault, []fake.Latency) {
	scale := func(times ...*fake.Duration) {
		for _, d := range times {
			*d = fake.Duration(float64(*d) / factor)
		}
	}
	faults, latency := slices.Clone(s.Faults), slices.Clone(s.Latency)
	for i := range faults {
		f := &faults[i]
		scale(&f.Delay, &f.From, &f.Until, &f.Every, &f.For)
	}
	for i := range latency {
		l := &latency[i]
		scale(&l.Base, &l.PerItem, &l.Jitter)
	}
	return faults, latency
}
