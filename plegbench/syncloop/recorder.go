package syncloop

import (
	"context"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// eventVerbosity is the verbosity of events in the log (pkg/kubelet/kubelet.go and cmd/kubelet/app/server.go upstream).
const eventVerbosity = 3

// A Recorder writes the events of a node to the log, and to the API server if there is one. It is safe for use by
// several goroutines.
type Recorder struct {
	record.EventRecorder
	Shutdown func() // stops the Recorder
}

// NewRecorder makes a Recorder. sink is nil without an API server.
func NewRecorder(sink record.EventSink, nodeName string, log logr.Logger) *Recorder {
	broadcaster := record.NewBroadcaster(record.WithContext(klog.NewContext(context.Background(), log)))
	broadcaster.StartStructuredLogging(eventVerbosity)
	if sink != nil {
		broadcaster.StartRecordingToSink(sink)
	}
	source := v1.EventSource{Component: "kubelet", Host: nodeName}
	return &Recorder{broadcaster.NewRecorder(apiserver.Scheme(), source), broadcaster.Shutdown}
}
