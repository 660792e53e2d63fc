package nodestatus

import (
	"context"
	"errors"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// runtimeStatus is an answer of a runtime; nil leaves a condition out.
func runtimeStatus(runtime, network *bool) *runtimeapi.RuntimeStatus {
	s := &runtimeapi.RuntimeStatus{}
	if runtime != nil {
		s.Conditions = append(s.Conditions, &runtimeapi.RuntimeCondition{
			Type: "RuntimeReady", Status: *runtime, Reason: "R", Message: "M",
		})
	}
	if network != nil {
		s.Conditions = append(s.Conditions, &runtimeapi.RuntimeCondition{
			Type: "NetworkReady", Status: *network, Reason: "NetworkPluginNotReady",
			Message: "Network plugin returns error: cni plugin not initialized",
		})
	}
	return s
}

func TestUpdate(t *testing.T) {
	const noCNI = "NetworkReady=false reason:NetworkPluginNotReady " +
		"message:Network plugin returns error: cni plugin not initialized"
	pleg := errors.New("pleg was last seen active 3m5s ago; threshold is 3m0s")
	for name, tt := range map[string]struct {
		status       *runtimeapi.RuntimeStatus
		checks       []error // of health
		runtime, net string
		log          string
		onReady      int
	}{
		"no network": {
			status: runtimeStatus(new(true), new(false)), onReady: 1,
			net: "container runtime network not ready: " + noCNI, log: "Container runtime network not ready",
		},
		"pleg alone prints bare": {
			status: runtimeStatus(new(true), new(true)), checks: []error{pleg, nil}, onReady: 1,
			runtime: "PLEG is not healthy: " + pleg.Error(),
		},
		"not ready does not refresh the clock; all, in order": {
			status: runtimeStatus(new(false), new(true)), checks: []error{nil, pleg},
			runtime: "[container runtime is down, EventedPLEG is not healthy: " + pleg.Error() +
				", container runtime not ready: RuntimeReady=false reason:R message:M]",
			log: "Container runtime not ready",
		},
	} {
		looptest.Bubble(t, name, func(t *testing.T) {
			var log looptest.Log
			readies := 0
			state := NewRuntimeState(RuntimeConfig{
				Down: 30 * time.Second, OnReady: func() { readies++ },
				Status: func(context.Context) (*runtimeapi.RuntimeStatus, error) { return tt.status, nil },
				Log:    log.Logger(0),
			})
			for i, err := range tt.checks {
				state.AddHealthCheck([]string{"PLEG", "EventedPLEG"}[i], func() error { return err })
			}
			state.lastSync = time.Now()
			time.Sleep(30 * time.Second)
			state.Update(t.Context())
			state.Update(t.Context())
			got := []any{looptest.Text(state.RuntimeErrors()), looptest.Text(state.NetworkErrors()), readies}
			looptest.Equal(t, "errors and calls of OnReady", []any{tt.runtime, tt.net, tt.onReady}, got)
			if lines := log.Lines(""); (len(log.Lines(tt.log)) > 0) != (tt.log != "") {
				t.Errorf("logged %q, want %q", lines, tt.log)
			}
		})
	}
}
