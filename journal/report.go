package journal

import (
	"cmp"
	"slices"
	"time"
)

// APIVersion is the version of the JSON document. Fields may be added within it, never renamed.
const APIVersion = "kdiag/v1"

// A Report lists the findings in the logs of a node: the answer of kdiag journal, and evidence for kdiag pleg.
type Report struct {
	APIVersion   string    `json:"apiVersion"`
	Kind         string    `json:"kind"` // JournalReport
	GeneratedAt  time.Time `json:"generatedAt"`
	Host         string    `json:"host,omitempty"` // the host that the records name, if it is one
	KdiagVersion string    `json:"kdiagVersion,omitempty"`
	Command      string    `json:"command,omitempty"` // kdiag journal

	// Filled in by judge.Journal of package checks/judge; Read leaves these empty.
	Status    string     `json:"status,omitempty"`    // healthy, degraded, unhealthy or unknown
	Verdict   string     `json:"verdict,omitempty"`   // in a word or three, such as RECOVERED
	Partial   bool       `json:"partial,omitempty"`   // the reading was cut short
	Problems  []string   `json:"problems"`            // the findings and the unread parts, in a sentence each
	NextSteps []NextStep `json:"nextSteps,omitempty"` // commands that only read
	Findings  []Finding  `json:"findings,omitempty"`  // faults without an incident, most serious first

	Lines    int64      `json:"lines"` // records looked at: journal entries, or lines of text
	Bytes    int64      `json:"bytes"` // read, after decompression
	From     *time.Time `json:"from,omitempty"`
	To       *time.Time `json:"to,omitempty"`
	Episodes []Episode  `json:"episodes"` // by time
	// Failing is a failure that goes on at the end of the logs and has not made PLEG unhealthy, which takes 3 minutes.
	Failing    *Episode     `json:"failing,omitempty"`
	Signatures []Count      `json:"signatures"` // by first occurrence, then code
	Events     []Event      `json:"events"`     // what happened beside the unhealthy records, by time; bounded
	Sources    []Source     `json:"sources"`    // in the order in which they were read
	Unparsed   int64        `json:"unparsed"`   // records in a form that kdiag does not know
	Unreadable []Unreadable `json:"unreadable"`
	Notes      []string     `json:"notes,omitempty"` // assumptions and limits of the answer, for a person

	// MemoryKills are where the kernel killed for memory, the most often first; bounded.
	MemoryKills []MemoryKill `json:"memoryKills,omitempty"`
	// Errors are the error and warning records of the kubelet and the runtime by template, the most often first; bounded.
	Errors []ErrorGroup `json:"errors,omitempty"`

	// Goroutines say what the latest goroutine dumps in the logs show of the kubelet and the runtime, a sentence each:
	// which goroutine waits for what, where. Filled in by the command.
	Goroutines []string `json:"goroutines,omitempty"`

	Dumped []Dumped       `json:"-"` // logs that hold goroutine dumps, the newest first
	Zone   *time.Location `json:"-"` // of the clock that the logs were written by, as far as one is known; else UTC
}

// A Finding is something that breaks a node without making PLEG unhealthy.
type Finding struct {
	Code    string     `json:"code"`    // of the signature, or better words
	Cause   string     `json:"cause"`   // for kdiag explain
	Summary string     `json:"summary"` // a clause without a time
	Count   int64      `json:"count"`
	Unit    string     `json:"unit"` // of Count: record
	First   *time.Time `json:"first,omitempty"`
	Last    *time.Time `json:"last,omitempty"`
	Ongoing bool       `json:"ongoing,omitempty"` // until the log ends
	Words   string     `json:"words,omitempty"`   // the error of the last record
}

// A NextStep is a command, and why to run it.
type NextStep struct {
	Why     string `json:"why"`
	Command string `json:"command"`
}

// The kinds of episodes.
const (
	Incident = "incident"
	Startup  = "startup" // a kubelet that has just started and has not relisted yet; no incident
	Failing  = "failing" // only in Report.Failing: relists fail, or the loop does no work, and the log ends
)

// An Episode is one stretch of time in which PLEG was not healthy.
type Episode struct {
	Kind string `json:"kind"`
	// Start and End are the times of the first and the last record that states it. Absent when no record has a time.
	Start *time.Time `json:"start,omitempty"`
	End   *time.Time `json:"end,omitempty"`
	// Anchor is when the last good relist began: time of a record minus the age in it. With several stalls, the first.
	Anchor *time.Time `json:"anchor,omitempty"`
	// Seconds is from Start to End; the trouble itself lasted from Anchor to Recovery, or to the end of the log.
	Seconds            float64    `json:"seconds"`
	Lines              int        `json:"lines"`
	MaxLastSeenSeconds float64    `json:"maxLastSeenSeconds,omitempty"` // worst age that a record states
	ThresholdSeconds   float64    `json:"thresholdSeconds,omitempty"`   // as the records state it
	Recovered          bool       `json:"recovered"`
	RecoveredAt        *time.Time `json:"recoveredAt,omitempty"`
	RecoveredBy        string     `json:"recoveredBy,omitempty"` // code of the signature that showed it
	Host               string     `json:"host,omitempty"`
	// NotReady is the code of the signature for which the node was NotReady while PLEG was well; else empty.
	NotReady  string   `json:"notReady,omitempty"`
	Stalls    []Stall  `json:"stalls,omitempty"`    // more than one: relists finish, but slowly
	Reasons   []string `json:"reasons,omitempty"`   // the other reasons that the records list
	Restarts  []Event  `json:"restarts,omitempty"`  // of kubelet and runtime, inside the episode
	StartedBy string   `json:"startedBy,omitempty"` // of a start-up: why the kubelet started
	Flaps     int      `json:"flaps,omitempty"`     // position in a series at a regular interval, from 1

	// Context holds facts for judging why an incident happened; nil for the start of a kubelet.
	Context *Context `json:"-"`
	// Filled in by judge.Journal of package checks/judge.
	Culprits []Culprit `json:"culprits,omitempty"` // objects that failing calls name, most often named first
	Causes   []Cause   `json:"causes"`             // most likely first
}

// A Stall is one relist that did not finish in time: all records with the same anchor.
type Stall struct {
	Anchor             time.Time `json:"anchor"`
	First              time.Time `json:"first"`
	Last               time.Time `json:"last"`
	Lines              int       `json:"lines"`
	MaxLastSeenSeconds float64   `json:"maxLastSeenSeconds"`
	// SpreadSeconds is how far the anchors of its records lie apart; a clock step shows here.
	SpreadSeconds float64 `json:"spreadSeconds"`
}

// A Cause is why an episode probably happened, by the logs alone. Code is a cause code of kdiag explain.
type Cause struct {
	Code       string   `json:"code"`
	Confidence float64  `json:"confidence"` // 0 to 1
	Summary    string   `json:"summary"`    // one sentence
	Evidence   Evidence `json:"evidence"`
}

// Evidence is the evidence for and against a cause, and the evidence that is missing.
type Evidence struct {
	For     []string `json:"for"`
	Against []string `json:"against"`
	Missing []string `json:"missing"`
}

// A Culprit is an object that records of an episode name in failing calls.
type Culprit struct {
	Kind      string `json:"kind"` // Container, PodSandbox, Pod, Process, Filesystem, Device, Unit
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	PodUID    string `json:"podUID,omitempty"`
	Records   int    `json:"records"`
	Example   string `json:"example"` // code of the signature that named it first
}

// A Count is how often one signature was seen.
type Count struct {
	Code     string         `json:"code"`
	Title    string         `json:"title"`
	Lane     string         `json:"lane"` // kubelet, runtime, kernel, node
	Count    int64          `json:"count"`
	First    *time.Time     `json:"first,omitempty"`
	Last     *time.Time     `json:"last,omitempty"`
	Example  string         `json:"example"`          // the first record, cleaned of control characters and cut
	Latest   string         `json:"latest,omitempty"` // the last record, if it differs
	Subjects []SubjectCount `json:"subjects,omitempty"`
}

// Newest returns the newest record: how something fails now need not be how it failed first.
func (c *Count) Newest() string { return cmp.Or(c.Latest, c.Example) }

// A SubjectCount is how often records of one signature named one object.
type SubjectCount struct {
	Kind  string     `json:"kind"`
	ID    string     `json:"id"`              // id, name or path
	Name  string     `json:"name,omitempty"`  // of a process, whose ID is its number
	InPod bool       `json:"inPod,omitempty"` // of a process that was killed for memory: its control group is of a pod
	Error string     `json:"error,omitempty"` // the newest about a pod, container or sandbox
	Count int64      `json:"count"`
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
}

// A MemoryKill is how often the kernel killed processes of one name in one control group, by the records that name them
// (Linux 4.19 and later).
type MemoryKill struct {
	Cgroup string     `json:"cgroup"`          // of the processes
	Limit  string     `json:"limit,omitempty"` // the group that was at its limit; empty: the node ran out of memory
	Task   string     `json:"task,omitempty"`  // the name of the processes
	Count  int64      `json:"count"`
	First  *time.Time `json:"first,omitempty"`
	Last   *time.Time `json:"last,omitempty"`
}

// An Event is one occurrence, or a burst of the same one, for the timeline.
type Event struct {
	At      *time.Time `json:"at,omitempty"`
	Until   *time.Time `json:"until,omitempty"` // end of a burst
	Count   int64      `json:"count"`
	Lane    string     `json:"lane"`
	Code    string     `json:"code"`
	Marker  string     `json:"marker"` // start, stop, restart, error, warning, recovery
	What    string     `json:"what"`   // a few words
	Subject string     `json:"subject,omitempty"`
}

// A Source is one file or stream, or one boot of a journal, that was read.
type Source struct {
	Name       string     `json:"name"`
	Format     string     `json:"format"`                // such as journal, klog, syslog+klog, kernel, describe
	Compressed string     `json:"compression,omitempty"` // gzip, xz, zstd, bzip2
	Lines      int64      `json:"lines"`
	Bytes      int64      `json:"bytes"`
	From       *time.Time `json:"from,omitempty"`
	To         *time.Time `json:"to,omitempty"`
	Zone       string     `json:"zone,omitempty"` // of klog's stamps, such as +08:00, and how it is known
	Year       string     `json:"year,omitempty"` // how the year is known
	Unparsed   int64      `json:"unparsed"`
	Problem    string     `json:"problem,omitempty"` // why it was not read, or not to its end
}

// An Unreadable is a stretch of a source that could not be read.
type Unreadable struct {
	Source string `json:"source"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Why    string `json:"why"`
}

// Incidents returns the episodes in which PLEG was not healthy, without the starts of a kubelet.
func (r *Report) Incidents() []Episode {
	return slices.DeleteFunc(slices.Clone(r.Episodes), func(e Episode) bool { return e.Kind != Incident })
}

// MainIncident returns the index of the incident that matters most: the last that has not ended, else the one with
// the worst age; -1 without any.
func MainIncident(incidents []Episode) int {
	worst := -1
	for i, e := range slices.Backward(incidents) {
		if !e.Recovered {
			return i
		}
		if worst < 0 || e.MaxLastSeenSeconds > incidents[worst].MaxLastSeenSeconds {
			worst = i
		}
	}
	return worst
}

// Headline returns the main episode of a report: an incident that has not ended, else the failure at the end, else the
// worst incident; nil if there is none.
func (r *Report) Headline() *Episode {
	incidents := r.Incidents()
	i := MainIncident(incidents)
	if r.Failing != nil && (i < 0 || incidents[i].Recovered) {
		return r.Failing
	}
	if i < 0 {
		return nil
	}
	return &incidents[i]
}

// Span returns from when to when an episode lasted, as far as the log shows: from the anchor to the recovery. It is
// false without times.
func (e *Episode) Span() (from, to time.Time, ok bool) {
	if e.Start == nil {
		return from, to, false
	}
	from, to = *e.Start, *e.Start
	for _, t := range []*time.Time{e.End, e.Anchor, e.RecoveredAt} {
		if t != nil && t.Before(from) {
			from = *t
		}
		if t != nil && t.After(to) {
			to = *t
		}
	}
	return from, to, true
}
