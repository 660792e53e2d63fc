package plegbench

import (
	"context"

	"github.com/kdiag/kdiag/crictl"
)

// A pulse is a Version call made on the side while others stall. Version needs nothing but a server that serves: a
// runtime that hangs on one container's lock answers it, one that was stopped or is deadlocked does not.
//
// It is dropped, by cancel, when what stalled was answered after all: then there is nothing left to learn.
type pulse struct {
	call   <-chan crictl.Call // gives the call when it has ended
	cancel context.CancelFunc
}

// startPulse asks for the version on the side.
func (r *run) startPulse(ctx context.Context) *pulse {
	ctx, cancel := context.WithCancel(ctx)
	call := make(chan crictl.Call, 1)
	go func() {
		defer cancel()
		_, c := r.client.Version(ctx)
		call <- c
	}()
	return &pulse{call: call, cancel: cancel}
}

// beat records a finished pulse. A runtime that does not even answer Version is asked nothing else.
func (r *run) beat(c crictl.Call) {
	r.m.Pulses = append(r.m.Pulses, c)
	r.note(c)
	r.gone = !c.OK()
}
