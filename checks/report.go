// Package checks is the vocabulary of a diagnosis: reports, causes, evidence, results of checks, thresholds. It is
// plain data; package checks/facts has the observations, checks/causes the causes, and checks/judge the judge.
package checks

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/kdiag/kdiag/plegbench"
)

// The kinds of JSON documents.
const (
	KindReport          = "Report"
	KindRuntimeProbe    = "RuntimeProbe"
	KindRelistBenchmark = "RelistBenchmark"
)

// APIVersion is the version of all JSON documents that kdiag prints. Fields may be added within it, never renamed.
const APIVersion = "kdiag/v1"

// A Verdict is the state of the node, or of the runtime, as far as kdiag could tell.
type Verdict string

// The verdicts, from good to bad; Unknown is neither.
const (
	Healthy   Verdict = "healthy"   // nothing found
	Degraded  Verdict = "degraded"  // warnings only
	Unhealthy Verdict = "unhealthy" // at least one critical cause
	Unknown   Verdict = "unknown"   // kdiag could not look
)

// A Severity ranks causes.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // the node is, or is about to be, NotReady because of it
	Warning  Severity = "warning"  // it will become so, or makes it worse
)

// A Header stands at the top of every JSON document.
type Header struct {
	APIVersion   string    `json:"apiVersion"`
	Kind         string    `json:"kind"`
	Command      string    `json:"command,omitempty"` // that made the document, without flags: kdiag pleg
	GeneratedAt  time.Time `json:"generatedAt"`
	Host         string    `json:"host,omitempty"`
	KdiagVersion string    `json:"kdiagVersion,omitempty"`
	// Status of the node or the runtime; of a command that only does work, healthy when all was done, degraded when
	// a part of it failed.
	Status    Verdict    `json:"status"`
	Problems  []string   `json:"problems"`            // why the answer is unknown or not whole, for a person
	NextSteps []NextStep `json:"nextSteps,omitempty"` // of the first cause, if there is one
}

// An Answer is a document that diagnoses a runtime: its head, the runtime that was asked, the causes.
type Answer interface {
	Answer() (*Header, Runtime, []Cause)
}

// Answer returns what all diagnoses have.
func (r *Report) Answer() (*Header, Runtime, []Cause) { return &r.Header, r.Runtime, r.Causes }

// Answer returns what all diagnoses have.
func (p *RuntimeProbe) Answer() (*Header, Runtime, []Cause) { return &p.Header, p.Runtime, p.Causes }

// Answer returns what all diagnoses have.
func (b *RelistBenchmark) Answer() (*Header, Runtime, []Cause) { return &b.Header, b.Runtime, b.Causes }

// A Runtime is the runtime that was asked, and why that one.
type Runtime struct {
	Endpoint       string `json:"endpoint,omitempty"`
	EndpointSource string `json:"endpointSource,omitempty"` // flag, env, kubelet, crictl.yaml, well-known, simulated
	EndpointReason string `json:"endpointReason,omitempty"`
	Name           string `json:"name,omitempty"`
	Version        string `json:"version,omitempty"`
	APIVersion     string `json:"apiVersion,omitempty"`
	Simulate       string `json:"-"` // the value of --simulate as a shell takes it, for next steps
	From           string `json:"-"` // the value of --from as a shell takes it
}

// A Report is the answer of kdiag pleg and kdiag node: the verdict on one node.
type Report struct {
	Header
	Runtime Runtime            `json:"runtime"`
	Causes  []Cause            `json:"causes"` // most likely first, root before consequence
	Relist  *plegbench.Summary `json:"relist,omitempty"`
	Checks  []Result           `json:"checks"`
	Notes   []string           `json:"notes,omitempty"` // worth knowing, but no problem of the node
	// Recorded is since when the agent of this node saw what goes on, for a person: an agent does not change documents.
	Recorded string `json:"-"`
}

// A Cause is one diagnosed cause with its evidence and what to do.
type Cause struct {
	Code       string   `json:"code"`
	Severity   Severity `json:"severity"`
	Confidence float64  `json:"confidence"` // 0 to 1; Confidence explains the steps
	Summary    string   `json:"summary"`    // one sentence that names the culprit
	// Effect describes the consequences for the node and its pods, in a line for each range of kubelet versions.
	Effect    []string   `json:"effect,omitempty"`
	Evidence  Evidence   `json:"evidence"`
	Subject   *Subject   `json:"subject,omitempty"`
	Related   []Subject  `json:"related,omitempty"`   // further culprits of the same kind
	CausedBy  string     `json:"causedBy,omitempty"`  // code of the cause in this report that led to this one
	Action    Action     `json:"action,omitempty"`    // the least that ends it
	ActionWhy string     `json:"actionWhy,omitempty"` // one sentence: why that, and no less
	NextSteps []NextStep `json:"nextSteps"`           // least is lost first
}

// An Action is what ends a cause, for programs that repair nodes. kdiag itself repairs nothing.
type Action string

// The actions, the least first. A controller carries out those up to ReplaceNode; the last two need a person.
const (
	ActionNone           Action = "None"           // it is over
	ActionWait           Action = "Wait"           // it ends by itself, or with its root
	ActionDeletePod      Action = "DeletePod"      // the pod of the subject
	ActionRestartRuntime Action = "RestartRuntime" // containers run on
	ActionRestartKubelet Action = "RestartKubelet" // containers run on
	ActionRebootNode     Action = "RebootNode"     // drain first; the same machine comes back
	ActionReplaceNode    Action = "ReplaceNode"    // drain first; its hardware or its disk is not to be trusted
	ActionFixNode        Action = "FixNode"        // on this node, by the next steps
	ActionFixCluster     Action = "FixCluster"     // outside of this node
)

// Actions returns all actions, the least first.
func Actions() []Action {
	return []Action{
		ActionNone, ActionWait, ActionDeletePod, ActionRestartRuntime, ActionRestartKubelet, ActionRebootNode,
		ActionReplaceNode, ActionFixNode, ActionFixCluster,
	}
}

// Evidence holds the observations for and against a cause, and those that could not be made.
type Evidence struct {
	For     []string `json:"for"`
	Against []string `json:"against"`
	Missing []string `json:"missing"` // what could not be looked at, and why
}

// A Subject names a culprit.
type Subject struct {
	// Kind is Container, PodSandbox, Unit, Process, Filesystem, Disk, Cgroup, Certificate, Socket, RPC or Node.
	Kind      string    `json:"kind"`
	ID        string    `json:"id,omitempty"`
	Name      string    `json:"name,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"`
	PodUID    string    `json:"podUID,omitempty"`
	Owner     string    `json:"owner,omitempty"`     // of the pod, by its sandbox's labels: ledger (StatefulSet)
	Processes []Process `json:"processes,omitempty"` // on this host: its shim, its runc, or the process itself
}

// Label names a subject in a few words: payments/ledger-db-0 ledger. It is empty for nil.
func (s *Subject) Label() string {
	if s == nil {
		return ""
	}
	pod, name := strings.TrimPrefix(s.Namespace+"/"+s.Pod, "/"), s.Name
	if s.Pod == "" || name == s.Pod {
		return cmp.Or(name, s.Pod, s.ID)
	}
	return strings.TrimSpace(pod + " " + name)
}

// A Process is a process that belongs to a subject.
type Process struct {
	PID   int    `json:"pid"`
	Name  string `json:"name"`
	Role  string `json:"role"`            // runtime, shim, oci, cni, kubelet
	State string `json:"state"`           // in words: sleeping, stopped, uninterruptible sleep, ...
	Wchan string `json:"wchan,omitempty"` // kernel function that it waits in
	Age   string `json:"age,omitempty"`   // since it was started, such as 4m12s
}

// A NextStep is one thing to do, as a command that can be pasted.
type NextStep struct {
	Why     string `json:"why"`
	Command string `json:"command"`
	Touches string `json:"touches"` // one of the Touches constants
}

// What next steps touch, from nothing to the whole node; causes.BlastRadii has them in order.
const (
	TouchesNothing   = "nothing"       // reads only
	TouchesDump      = "a dump"        // writes a dump into a log or /tmp; whatever runs goes on
	TouchesScheduler = "new pods only" // cordon
	TouchesLimit     = "a limit"       // raises one until the next boot
	TouchesLogs      = "old logs"      // deletes old records
	TouchesExited    = "exited only"   // removes what no longer runs
	TouchesProcess   = "one process"   // a runc, a plugin, a stopped daemon
	TouchesPod       = "one pod"       // deletes it, or ends what its containers need
	TouchesNewPod    = "a new pod"     // starts one, and removes it
	TouchesMount     = "a mount"       // unmounts, remounts or thaws it
	TouchesSystemd   = "process 1"     // systemd executes itself anew; services go on
	TouchesRuntime   = "the runtime"   // restarts a daemon; running containers survive it
	TouchesKubelet   = "the kubelet"   // restarts it; running containers survive it
	TouchesNode      = "the node"      // all that runs: drain, reboot, the clock
)

// A Status is the outcome of one check.
type Status string

// The outcomes. Skipped (does not apply here) and unknown (could not look) are never ok.
const (
	StatusOK       Status = "ok"
	StatusWarning  Status = "warning"
	StatusCritical Status = "critical"
	StatusUnknown  Status = "unknown"
	StatusSkipped  Status = "skipped"
)

// A Result is what one check found.
type Result struct {
	ID              string   `json:"id"` // such as runtime.status
	Status          Status   `json:"status"`
	Summary         string   `json:"summary"`
	DurationSeconds *float64 `json:"durationSeconds,omitempty"`
}

// A RuntimeProbe is the answer of kdiag runtime.
type RuntimeProbe struct {
	Header
	Runtime    Runtime     `json:"runtime"`
	Connect    ConnectInfo `json:"connect"`
	Conditions []Condition `json:"conditions"`
	RPCs       []RPC       `json:"rpcs"`
	Causes     []Cause     `json:"causes"`
}

// ConnectInfo describes how the socket behaved before any RPC.
type ConnectInfo struct {
	State   string   `json:"state"` // ok, missing, refused, denied, not-socket, backlogged, silent, foreign, failed
	Seconds float64  `json:"seconds"`
	Error   string   `json:"error,omitempty"`
	Peer    *Process `json:"peer,omitempty"` // the process that listens
}

// A Condition is one condition as the runtime states it.
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// An RPC is one call as it was measured.
type RPC struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Code    string  `json:"code"` // gRPC's name for the outcome; OK
	Error   string  `json:"error,omitempty"`
	Bytes   *int    `json:"bytes,omitempty"` // of the answer; absent when there was none
	Items   *int    `json:"items,omitempty"` // in the answer, of the RPCs that list
}

// A RelistBenchmark is the answer of kdiag relist.
type RelistBenchmark struct {
	Header
	Runtime  Runtime                `json:"runtime"`
	Causes   []Cause                `json:"causes"`
	Relist   *plegbench.Summary     `json:"relist,omitempty"`
	RPCs     []plegbench.RPCSummary `json:"rpcs"`
	Samples  []RelistSample         `json:"samples"`
	Forecast plegbench.Forecast     `json:"forecast"`
}

// A RelistSample is one timed relist of a series.
type RelistSample struct {
	At         time.Time `json:"at"`
	Seconds    float64   `json:"seconds"`
	Containers *int      `json:"containers,omitempty"` // absent when their list failed
	Bytes      *int      `json:"bytes,omitempty"`      // of the larger list; absent when one of the two failed
	Error      string    `json:"error,omitempty"`
}

// A Definition is the documentation of a cause that kdiag explain prints.
type Definition struct {
	Code     string   `json:"code"`
	Title    string   `json:"title"`              // a few words
	Area     string   `json:"area,omitempty"`     // the failing part: Runtime, Pods and containers, Kubelet, or Host
	Means    string   `json:"means"`              // what happens in the kubelet and the runtime; paragraphs of text
	Confirm  []string `json:"confirm,omitempty"`  // how a person can confirm it, as commands or observations
	Fix      []string `json:"fix,omitempty"`      // what helps, in order of blast radius
	Mistaken string   `json:"mistaken,omitempty"` // similar causes, and how to tell them apart
	Sources  []string `json:"sources,omitempty"`  // threads, files and papers where the facts come from
	RootOf   []string `json:"rootOf,omitempty"`   // codes of causes that follow from this one when both are found
	Actions  []Remedy `json:"actions,omitempty"`  // what a report may name as its action; the last where no other fits
}

// A Remedy is an action with its reason.
type Remedy struct {
	Action Action `json:"action"`
	Why    string `json:"why"` // one sentence
}

// The verdicts of a log.
const (
	LogUnknown   = "UNKNOWN"          // nothing could be looked at
	LogClear     = "NOTHING FOUND"    // looked at, and no incident found
	LogBroken    = "NO PLEG INCIDENT" // but other records of interest
	LogPartial   = "INCOMPLETE"       // nothing found, and the reading was cut short
	LogRecovered = "RECOVERED"        // incidents, and all of them have ended
	LogFailing   = "FAILING"          // no open incident, but relists or starts of the kubelet fail until the log ends
	LogUnhealthy = "UNHEALTHY"        // an incident that has no end in the log
)

// The steps of the confidence scale. A cause starts at one of them, and each line against it lowers it.
const (
	Certain = 0.95 // observed directly; no other cause looks the same
	Strong  = 0.8  // the pattern fits, and one discriminator could not be seen
	Fair    = 0.6  // the pattern fits, and so do one or two other causes
	Weak    = 0.4  // consistent with the observations, no more
)

// What one line of evidence takes off, and where that ends.
const (
	costOfAgainst   = 0.15
	costOfMissing   = 0.05
	mostForMissing  = 0.15 // not looking never makes a cause unlikely
	leastConfidence = 0.1
)

// Agreement raises the step of a cause where the kubelet's own log agrees with the measurement: by as much as one
// missing line takes off.
const Agreement = 0.05

// Confidence returns how sure kdiag is of a cause, from 0.1 to 0.95. It starts at step and falls by 0.15 for each line
// of evidence against and by 0.05 for each that is missing, up to three. Equal evidence gives an equal value, so that
// two reports can be compared. It is no probability, but the share of the pattern that was observed. A step that
// was raised because the kubelet's log agrees makes up for missing evidence, up to Certain.
func Confidence(step float64, e Evidence) float64 {
	missing := min(float64(len(e.Missing))*costOfMissing, mostForMissing)
	c := step - float64(len(e.Against))*costOfAgainst - missing
	return math.Round(min(max(c, leastConfidence), Certain)*100) / 100
}

// KindCanaryReport is the kind of the document of kdiag canary.
const KindCanaryReport = "CanaryReport"

// A CanaryReport is the answer of kdiag canary.
type CanaryReport struct {
	Header
	Runtime   Runtime      `json:"runtime"`
	Summary   string       `json:"summary"`             // one sentence
	Network   string       `json:"network"`             // host or cni
	Image     string       `json:"image,omitempty"`     // that was run
	SandboxID string       `json:"sandboxID,omitempty"` // of the last attempt
	Attempts  int          `json:"attempts"`            // 0: none; above 1: the earlier ones were stopped
	Seconds   float64      `json:"seconds"`             // of all steps
	Steps     []CanaryStep `json:"steps"`               // of the last attempt, in order
	CleanedUp bool         `json:"cleanedUp"`           // nothing of it is left in the runtime
	Left      []string     `json:"left,omitempty"`      // sandboxes that are left
	Earlier   []string     `json:"earlierRemoved,omitempty"`
}

// A CanaryStep is one timed call of a canary.
type CanaryStep struct {
	Name    string  `json:"name"` // of the RPC
	Seconds float64 `json:"seconds"`
	Status  Status  `json:"status"` // warning is slow
	Error   string  `json:"error,omitempty"`
	Skipped string  `json:"skipped,omitempty"` // why it was

	Hung bool `json:"-"`
}
