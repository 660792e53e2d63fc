package checks

import (
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

func runtimeConnect() Check {
	return Check{
		ID:    "runtime.connect",
		Title: "the socket accepts and speaks HTTP/2",
		Text: "Connects and exchanges the HTTP/2 preface, before any RPC. A gRPC server answers it from its transport, so this tells a process that runs from one " +
			"that is stopped, and a full listen queue from a refusal.",
		read: readRuntimeConnect,
	}
}

func readRuntimeConnect(f *Facts) Result {
	if f.Measurement == nil {
		return result(StatusUnknown, "no runtime was asked")
	}
	c := f.Measurement.Connect
	switch c.State {
	case crictl.ConnectOK:
		line := "answered in " + units.Duration(c.Elapsed)
		if p := f.peer(); p != nil && p.Name != "" {
			line += ", " + p.Name + ", " + p.State
		}
		return result(StatusOK, "%s", line).took(c.Elapsed)
	case crictl.ConnectMissing:
		return result(StatusCritical, "the socket does not exist").took(c.Elapsed)
	case crictl.ConnectRefused:
		return result(StatusCritical, "refused: nothing listens").took(c.Elapsed)
	case crictl.ConnectBacklogged:
		return result(StatusCritical, "the listen queue is full: nothing is accepted").took(c.Elapsed)
	case crictl.ConnectSilent:
		return result(StatusCritical, "accepts, and says nothing for %s", units.Duration(c.Elapsed)).took(c.Elapsed)
	case crictl.ConnectForeign:
		if c.TTRPC {
			return result(StatusCritical, "it is containerd's ttrpc socket, for its shims; %s", CRISocketBeside(f.Runtime.Endpoint)).took(c.Elapsed)
		}
		return result(StatusCritical, "what listens is no gRPC server").took(c.Elapsed)
	}
	return result(StatusUnknown, "%s", connectProblem(c)).took(c.Elapsed)
}
