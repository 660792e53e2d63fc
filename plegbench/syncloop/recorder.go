package syncloop

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// keptEvents is how many events a Recorder remembers.
const keptEvents = 200

// A Recorder takes the events of a node: into the log, into its memory, and to the API server if there is one. It is safe for
// use by several goroutines.
type Recorder struct {
	log  logr.Logger
	next record.EventRecorder // nil without an API server
	stop func()

	mu   sync.Mutex
	kept []Recorded
}

// A Recorded is an event that was taken.
type Recorded struct {
	At                            time.Time
	Object, Type, Reason, Message string
}

// NewRecorder makes a Recorder. A nil sink stands for no API server. Shutdown ends what it starts.
func NewRecorder(sink record.EventSink, nodeName string, log logr.Logger) *Recorder {
	r := &Recorder{log: log, stop: func() {}}
	if sink != nil {
		broadcaster := record.NewBroadcaster()
		broadcaster.StartRecordingToSink(sink)
		r.next = broadcaster.NewRecorder(apiserver.Scheme(), v1.EventSource{Component: "kubelet", Host: nodeName})
		r.stop = broadcaster.Shutdown
	}
	return r
}

// Shutdown ends the sending of events.
func (r *Recorder) Shutdown() { r.stop() }

// Event takes an event.
func (r *Recorder) Event(object runtime.Object, kind, reason, message string) {
	name := nameOf(object)
	r.log.V(3).Info("Event occurred", "object", name, "type", kind, "reason", reason, "message", message)
	r.mu.Lock()
	r.kept = append(r.kept, Recorded{time.Now(), name, kind, reason, message})
	if len(r.kept) > 2*keptEvents {
		r.kept = slices.Clone(r.kept[len(r.kept)-keptEvents:])
	}
	r.mu.Unlock()
	if r.next != nil {
		r.next.Event(object, kind, reason, message)
	}
}

// nameOf is namespace/name of an object or of a reference to one.
func nameOf(object runtime.Object) string {
	name, ns := "", ""
	if m, err := meta.Accessor(object); err == nil {
		name, ns = m.GetName(), m.GetNamespace()
	} else if ref, ok := object.(*v1.ObjectReference); ok {
		name, ns = ref.Name, ref.Namespace
	}
	if ns != "" {
		name = ns + "/" + name
	}
	return name
}

// Eventf formats the message of an event and takes it.
func (r *Recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf takes an event whose annotations matter to the API server alone.
func (r *Recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// Recent returns the newest events, oldest first.
func (r *Recorder) Recent() []Recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.kept[max(0, len(r.kept)-keptEvents):])
}
