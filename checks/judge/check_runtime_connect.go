package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
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

func readRuntimeConnect(f *facts.Facts) checks.Result {
	if f.Measurement == nil {
		return result(checks.StatusUnknown, "no runtime was asked")
	}
	c := f.Measurement.Connect
	switch c.State {
	case crictl.ConnectOK:
		line := "answered in " + units.Duration(c.Elapsed)
		if p := facts.PeerOf(f); p != nil && p.Name != "" {
			line += ", " + p.Name + ", " + p.State
		}
		return took(result(checks.StatusOK, "%s", line), c.Elapsed)
	case crictl.ConnectMissing:
		return took(result(checks.StatusCritical, "the socket does not exist"), c.Elapsed)
	case crictl.ConnectRefused:
		return took(result(checks.StatusCritical, "refused: nothing listens"), c.Elapsed)
	case crictl.ConnectBacklogged:
		return took(result(checks.StatusCritical, "the listen queue is full: nothing is accepted"), c.Elapsed)
	case crictl.ConnectSilent:
		return took(result(checks.StatusCritical, "accepts, and says nothing for %s", units.Duration(c.Elapsed)), c.Elapsed)
	case crictl.ConnectForeign:
		if c.TTRPC {
			return took(result(checks.StatusCritical, "it is containerd's ttrpc socket, for its shims; %s", facts.CRISocketBeside(f.Runtime.Endpoint)), c.Elapsed)
		}
		return took(result(checks.StatusCritical, "what listens is no gRPC server"), c.Elapsed)
	}
	return took(result(checks.StatusUnknown, "%s", facts.ConnectProblem(c)), c.Elapsed)
}
