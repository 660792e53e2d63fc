package reproduce

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	kubecontainer "github.com/kdiag/kdiag/plegbench/syncloop/container"
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

// A timeline takes the events of the syncLoop, and derives others from its state: relists that do not end, deaths that
// PLEG does not report, pods that run again. It is safe for use by several goroutines.
type timeline struct {
	notify func(Event)
	speed  float64
	node   string

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
	stuck    time.Time       // start of the relist that was reported as stuck
	starts   []*start
	late     bool // a death was not reported for a while during this fault
}

// A start is a pod that has to start: again, after its container was killed, or for the first time.
type start struct {
	pod     string
	dead    string // id of the container that was killed; empty for a new pod
	at      time.Time
	noticed bool // PLEG has reported the death
	done    bool // the pod runs
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
		e.Seconds, e.KubeletSeconds = t.seconds(e.At.Sub(t.first))
	}
	t.events = append(t.events, e)
	if t.notify != nil {
		t.notify(e)
	}
}

// seconds returns the seconds of a duration in this run and at a kubelet's own pace.
func (t *timeline) seconds(d time.Duration) (run, kubelet *float64) {
	return new(d.Seconds()), new(d.Seconds() * t.speed)
}

// figures are the parts of a text that change when it is repeated.
var figures = lazyregexp.New(`[0-9][0-9.]*(?:ns|µs|ms|[hms])?`)

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
	t.fault, t.seen = on && wrong, map[string]bool{}
	if !on {
		t.lifted = time.Now()
		t.add(Lifted, detail)
		return
	}
	t.lifted, t.late = time.Time{}, false
	if t.first.IsZero() {
		t.first = time.Now()
	}
	t.add(Fault, detail)
}

// notified takes an event of the syncLoop.
func (t *timeline) notified(e syncloop.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.What {
	case syncloop.Ready:
		t.ready = true
		t.add(Ready, e.Detail)
	case syncloop.NotReady:
		t.ready = false
		if !t.first.IsZero() && t.lifted.IsZero() && t.notReady.IsZero() {
			t.notReady, t.message = time.Now(), e.Detail
		}
		t.add(NotReady, e.Detail)
	case syncloop.Skipped:
		t.skipping = true
		t.once(Skip, e.Detail)
	case syncloop.Resumed:
		t.skipping = false
		t.add(Resume, "synchronizes pods again after "+e.Detail)
	case syncloop.RelistFailed:
		t.once(RelistFailed, e.Detail)
	case syncloop.StatusFailed:
		t.once(StatusFailed, e.Detail)
	case syncloop.ContainerDied:
		for _, s := range t.starts {
			if s.dead == e.Detail && !s.noticed {
				s.noticed = true
				t.add(PodNoticed, fmt.Sprintf("%s: PLEG reports its death after %s", s.pod, t.paced(time.Since(s.at))))
			}
		}
	}
}

// sawNotReady reports whether the node has been NotReady since the first fault, and the first message of its condition.
func (t *timeline) sawNotReady() (message string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.message, !t.notReady.IsZero()
}

// After these times a stall counts as an event, at the kubelet's own pace. A relist of a healthy node takes well
// below a second, and the next one starts a second later.
const (
	stuckAfter     = 30 * time.Second
	unnoticedAfter = 10 * time.Second
)

// paced is a duration of this run at the kubelet's own pace.
func (t *timeline) paced(d time.Duration) time.Duration {
	return time.Duration(float64(d) * t.speed).Round(100 * time.Millisecond)
}

// expect adds a pod that has to start. id is the container that was killed, empty for a new pod.
func (t *timeline) expect(what What, pod, id, detail string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(what, pod+": "+detail)
	t.starts = append(t.starts, &start{pod: pod, dead: id, at: time.Now(), noticed: id == ""})
}

// poll derives events from the state of the syncLoop.
func (t *timeline) poll(s syncloop.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := s.PLEG.InProgressSince
	if !t.stuck.IsZero() && !since.Equal(t.stuck) {
		t.add(RelistEnded, "the relist ended after "+t.paced(s.PLEG.Duration).String())
		t.stuck = time.Time{}
	}
	if running := t.paced(time.Since(since)); t.stuck.IsZero() && !since.IsZero() && running > stuckAfter {
		t.stuck = since
		t.add(RelistStuck, "a relist has not ended for "+running.String())
	}
	for _, p := range t.starts {
		age := t.paced(time.Since(p.at))
		if !p.noticed && !t.late && age > unnoticedAfter {
			t.late = true // one line for all deaths
			t.add(EventsStop, fmt.Sprintf("%s died %s ago, and PLEG has not reported it", p.pod, age))
		}
		if p.done || !slices.ContainsFunc(s.Pods, func(pod *v1.Pod) bool {
			return pod.Name == p.pod+"-"+t.node && ready(pod) &&
				kubecontainer.ParseID(pod.Status.ContainerStatuses[0].ContainerID).ID != p.dead
		}) {
			continue
		}
		p.done = true
		if p.dead == "" {
			t.add(PodRunning, p.pod+" runs")
		} else {
			t.add(PodRunning, fmt.Sprintf("%s runs again %s after its container died", p.pod, age))
		}
	}
}

func ready(p *v1.Pod) bool {
	return len(p.Status.ContainerStatuses) == len(p.Spec.Containers) && !slices.ContainsFunc(p.Status.ContainerStatuses,
		func(c v1.ContainerStatus) bool {
			return c.State.Running == nil || !c.Ready
		})
}

// why is why a pod does not run, in the words of its status.
func why(p *v1.Pod) (text string) {
	if p.Status.Reason != "" {
		text = ": " + p.Status.Reason + ", " + p.Status.Message
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			text += ": " + strings.TrimSuffix(w.Reason+", "+w.Message, ", ")
		}
		for _, end := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil {
				return text + fmt.Sprintf(": %s ended with exit code %d", c.Image, end.ExitCode)
			}
		}
	}
	return text
}

// settled returns nil once the node is Ready, the loop turns, every death has been noticed and all pods run; else an
// error that names the missing parts.
func (t *timeline) settled(pods []*v1.Pod, want int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var missing []string
	for _, s := range t.starts {
		if !s.noticed || !s.done {
			missing = append(missing, s.pod+" has not started")
		}
	}
	waiting := slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool {
		// Before the first fault a restart means that the image does not run by itself.
		return ready(p) && (!t.first.IsZero() || p.Status.ContainerStatuses[0].RestartCount == 0)
	})
	if running := len(pods) - len(waiting); running < want {
		text := fmt.Sprintf("%d of %d pods run", running, want)
		for _, p := range waiting[:min(1, len(waiting))] {
			text += "; " + strings.TrimSuffix(p.Name, "-"+t.node) + why(p)
		}
		missing = append(missing, text)
	}
	if !t.ready || t.skipping {
		missing = append(missing, "the node is not Ready")
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New(strings.Join(missing, ", "))
}
