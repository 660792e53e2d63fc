package syncloop

import (
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// A Recorder writes the events of a node to the log, and to the API server if there is one. It is safe for use by
// several goroutines.
type Recorder struct {
	log  logr.Logger
	next record.EventRecorder // nil without an API server
	stop func()
}

// NewRecorder makes a Recorder. sink is nil without an API server.
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

// Shutdown stops sending events.
func (r *Recorder) Shutdown() { r.stop() }

// Event records an event.
func (r *Recorder) Event(object runtime.Object, kind, reason, message string) {
	r.log.V(3).Info("Event occurred", "object", nameOf(object), "type", kind, "reason", reason, "message", message)
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

// Eventf records an event with a formatted message.
func (r *Recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf records an event without its annotations.
func (r *Recorder) AnnotatedEventf(
	object runtime.Object, _ map[string]string, kind, reason, format string, args ...any,
) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}
