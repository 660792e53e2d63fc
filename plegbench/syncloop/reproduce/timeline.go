package reproduce

import (
	"regexp"
	"slices"
	"sync"
	"time"
)

// An Event is something that happened in a run.
type Event struct {
	At     time.Time `json:"at"`
	What   What      `json:"what"`
	Detail string    `json:"detail"` // in the kubelet's or the runtime's own words where they have some
	// Seconds since the first fault, in this run and at a kubelet's own pace. Absent before it.
	Seconds        *float64 `json:"seconds,omitempty"`
	KubeletSeconds *float64 `json:"kubeletSeconds,omitempty"`
	Fault          bool     `json:"fault"`     // the fault is in force
	NodeReady      bool     `json:"nodeReady"` // the node's Ready condition is true
}

// A What is the kind of an Event.
type What string

// The kinds of events.
const (
	Started      What = "started"       // the syncLoop runs
	Ready        What = "ready"         // the node's condition
	NotReady     What = "not-ready"     // the node's condition
	Fault        What = "fault"         // begins
	Lifted       What = "lifted"        // the fault ends
	RelistStuck  What = "relist-stuck"  // a relist has been under way for 30 s of the kubelet's
	RelistEnded  What = "relist-ended"  // one that was stuck
	RelistFailed What = "relist-failed" // its lists were not answered
	StatusFailed What = "status-failed" // the call that shows whether the runtime is up
	EventsStop   What = "events-stop"   // a container died and PLEG has not reported it for 10 s of the kubelet's
	Skip         What = "skip"          // the loop stands still
	Resume       What = "resume"        // the loop goes on
	PodDied      What = "pod-died"      // its container was killed
	PodNoticed   What = "pod-noticed"   // PLEG has reported the death
	PodAdded     What = "pod-added"     // its manifest was written
	PodRunning   What = "pod-running"   // all pods, or one that was added or died
	Flooded      What = "flood"         // exited containers were made
	Collected    What = "collected"     // they are gone
	Recovered    What = "recovered"     // Ready, the loop turns, all pods run, nothing unnoticed
	Missed       What = "missed"        // what should have happened has not
	CleanedUp    What = "cleaned-up"
)

// A timeline takes events from several goroutines.
type timeline struct {
	notify func(Event)
	speed  float64

	mu       sync.Mutex
	events   []Event
	first    time.Time // first fault; zero before it
	lifted   time.Time // last end of the fault; zero while it is in force
	fault    bool
	ready    bool
	skipping bool
	seen     map[string]bool // texts of the kubelet since the fault last changed, without their figures
	notReady time.Time       // first NotReady while the fault was in force; zero before
	message  string          // of the Ready condition then
}

// event adds an event.
func (t *timeline) event(what What, detail string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(what, detail)
}

// add is event for callers that hold mu. The listener is called in the order of the events.
func (t *timeline) add(what What, detail string) {
	e := Event{At: time.Now(), What: what, Detail: detail, Fault: t.fault, NodeReady: t.ready}
	if !t.first.IsZero() {
		s := e.At.Sub(t.first).Seconds()
		k := s * t.speed
		e.Seconds, e.KubeletSeconds = &s, &k
	}
	t.events = append(t.events, e)
	if t.notify != nil {
		t.notify(e)
	}
}

// figures are the parts of a text that change when it is repeated.
var figures = regexp.MustCompile(`[0-9][0-9.]*(?:ns|µs|ms|[hms])?`)

// once adds an event unless the same text, figures apart, was added since the fault last changed. The caller holds mu.
func (t *timeline) once(what What, detail string) {
	key := string(what) + figures.ReplaceAllString(detail, "")
	if !t.seen[key] {
		t.seen[key] = true
		t.add(what, detail)
	}
}

// setFault notes that the fault begins or ends; in a scenario in which nothing is wrong it is never in force.
func (t *timeline) setFault(on, wrong bool, detail string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = on && wrong
	t.seen = map[string]bool{}
	what := Lifted
	if on {
		what = Fault
		t.lifted = time.Time{}
		if t.first.IsZero() {
			t.first = time.Now()
		}
	} else {
		t.lifted = time.Now()
	}
	t.add(what, detail)
}

// condition takes a change of the node's Ready condition.
func (t *timeline) condition(ready bool, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ready = ready
	if ready {
		t.add(Ready, message)
		return
	}
	if !t.first.IsZero() && t.lifted.IsZero() && t.notReady.IsZero() {
		t.notReady, t.message = time.Now(), message
	}
	t.add(NotReady, message)
}

// logged takes a line of the kubelet's log.
func (t *timeline) logged(err error, msg string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		return
	}
	switch msg {
	case "Skipping pod synchronization":
		t.skipping = true
		t.once(Skip, err.Error())
	case "GenericPLEG: Unable to retrieve pods":
		t.once(RelistFailed, err.Error())
	case "Container runtime sanity check failed":
		t.once(StatusFailed, err.Error())
	}
}

// resumed takes the end of the skipping.
func (t *timeline) resumed(after string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skipping = false
	t.add(Resume, "synchronizes pods again after "+after)
}

// well reports whether the node is Ready and the loop turns.
func (t *timeline) well() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ready && !t.skipping
}

// sawNotReady reports whether the node has been NotReady since the first fault, and the first message of its condition.
func (t *timeline) sawNotReady() (message string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.message, !t.notReady.IsZero()
}

func (t *timeline) all() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}
