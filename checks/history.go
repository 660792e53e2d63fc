package checks

import (
	"strings"
	"time"
	"unicode"
)

// KindHistory is the kind of the document of kdiag history.
const KindHistory = "History"

// A History is the agent's record of a node.
type History struct {
	Header
	From        time.Time      `json:"from"` // of the first record within the time asked for
	To          time.Time      `json:"to"`
	Samples     []LookSample   `json:"samples"`
	Transitions []Transition   `json:"transitions"`
	Captures    []TakenCapture `json:"captures"`
	Gaps        []Gap          `json:"gaps"`
	// Incidents are the transitions by the incident that they are of, by time.
	Incidents []Incident `json:"incidents"`
}

// An Incident is a time in which a cause was there, with its consequences.
type Incident struct {
	// Began is when the first of its causes began, which is the Incident of its transitions.
	Began time.Time `json:"began"`
	// From and To are the times at which the root cause began and ended; To is the History's end while it is Open.
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Open     bool      `json:"open"`
	Cause    string    `json:"cause"` // code of the root
	Severity Severity  `json:"severity"`
	Summary  string    `json:"summary"`
	// SlowSince is since when the runtime was slow when the root began.
	SlowSince *time.Time `json:"slowSince,omitempty"`
	// Hung is the call that hung first.
	Hung *HungCall `json:"hung,omitempty"`
}

// A LookSample is one measurement of the agent.
type LookSample struct {
	At     time.Time `json:"at"`
	Status Verdict   `json:"status"`
	// ListSeconds is how long both lists took; absent when one was not answered.
	ListSeconds      *float64 `json:"listSeconds,omitempty"`
	ProjectedSeconds *float64 `json:"projectedSeconds,omitempty"` // as in plegbench.Summary
	ColdSeconds      *float64 `json:"coldSeconds,omitempty"`
	SlowestSeconds   *float64 `json:"slowestSeconds,omitempty"` // the slowest status call since the sample before
	Containers       *int     `json:"containers,omitempty"`
	Exited           *int     `json:"exited,omitempty"` // of Containers
	Sandboxes        *int     `json:"sandboxes,omitempty"`
	ListBytes        *int     `json:"listBytes,omitempty"` // of the larger list
	// Hung are the calls that have no answer yet, the oldest first.
	Hung []HungCall `json:"hung,omitempty"`
	// Causes are the causes that it found, most likely first.
	Causes []LookCause `json:"causes,omitempty"`
}

// A HungCall is a call without an answer.
type HungCall struct {
	Method string    `json:"method"` // ContainerStatus
	Object string    `json:"object,omitempty"`
	Name   string    `json:"name,omitempty"` // of the object: payments/ledger-db-0 ledger
	Since  time.Time `json:"since"`
}

// A LookCause is a cause in a sample.
type LookCause struct {
	Code       string   `json:"code"`
	Severity   Severity `json:"severity"`
	Confidence float64  `json:"confidence"`
	Subject    string   `json:"subject,omitempty"`
}

// The states of a cause on a node.
const (
	CauseClear     = "clear"     // absent, or gone: two runs did not find it
	CauseOnset     = "onset"     // one run found it
	CauseConfirmed = "confirmed" // two did, or one where it cannot be mistaken
)

// A Transition is a change of the state of a cause.
type Transition struct {
	// At is the time of the change, as exactly as is known: for an onset the start of the first call without an answer,
	// or the time in a log; for an end the first run without the cause.
	At time.Time `json:"at"`
	// NotBefore is the last run at which it was otherwise; absent without such a run.
	NotBefore *time.Time `json:"notBefore,omitempty"`
	// Noticed is the time of the run that found it.
	Noticed  time.Time `json:"noticed"`
	From     string    `json:"from"` // clear, onset, confirmed; as To where a warning becomes critical
	To       string    `json:"to"`
	Cause    string    `json:"cause"` // code
	Severity Severity  `json:"severity"`
	Subject  string    `json:"subject,omitempty"` // payments/ledger-db-0 ledger
	Summary  string    `json:"summary"`
	// CausedBy is the code of the cause that it follows from.
	CausedBy string `json:"causedBy,omitempty"`
	// Incident is the time at which the incident began that this is a part of. A cause that comes back within ten
	// minutes is of the same incident.
	Incident time.Time `json:"incident"`
}

// A TakenCapture is an archive of kdiag bundle that the agent wrote.
type TakenCapture struct {
	At    time.Time `json:"at"`
	Cause string    `json:"cause"`
	Path  string    `json:"path"`
	Bytes int64     `json:"bytes"`
	Error string    `json:"error,omitempty"` // why the capture is missing or incomplete
}

// A Gap is a time without samples.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"` // before From where the clock was set back
	Why  string    `json:"why"`
	// Restarted is true where the node was restarted in it.
	Restarted bool `json:"restarted,omitempty"`
}

// A request for archives has the token of an agent in the header CapturesToken. In a cluster the token is the value of
// token in the secret CapturesSecret, in the namespace of the agent.
const (
	CapturesToken  = "Kdiag-Captures-Token"
	CapturesSecret = "kdiag-captures"
)

// KindCaptureList is the kind of the document of kdiag fleet bundle --list, and of the agent's /captures/.
const KindCaptureList = "CaptureList"

// A CaptureList are the archives in the agent's folder, the oldest first.
type CaptureList struct {
	Header
	Captures []Capture `json:"captures"`
}

// A Capture is an archive of kdiag bundle in the agent's folder.
type Capture struct {
	Name  string    `json:"name"` // of the file
	At    time.Time `json:"at"`
	Cause string    `json:"cause"` // code
	Bytes int64     `json:"bytes"`
}

// CaptureSent ends the name of the empty file beside a capture that was sent away (kdiag agent --upload).
const CaptureSent = ".sent"

const (
	captureTime   = "20060102T150405Z"
	captureEnding = ".tar.zst"
)

// CaptureName returns the file name of a capture: 20261123T140512Z-RuntimeHung.tar.zst.
func CaptureName(at time.Time, cause string) string {
	return at.UTC().Format(captureTime) + "-" + cause + captureEnding
}

// ParseCapture reads such a name. It is not ok for any other, above all for a path.
func ParseCapture(name string) (c Capture, ok bool) {
	stamp, rest, _ := strings.Cut(name, "-")
	cause, ok := strings.CutSuffix(rest, captureEnding)
	at, err := time.Parse(captureTime, stamp)
	foreign := func(r rune) bool { return !unicode.IsLetter(r) }
	if !ok || err != nil || strings.ContainsFunc(cause, foreign) {
		return c, false
	}
	return Capture{Name: name, At: at, Cause: cause}, true
}
