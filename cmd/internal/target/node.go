package target

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks/capture"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/probes"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
)

// Looks select how much of the node is looked at beside the runtime's socket. The zero value is nothing.
type Looks struct {
	Cheap       bool // what takes little: for kdiag pleg
	All         bool
	Credentials kubelet.Credentials // for the kubelet's server
	APIServer   bool                // the server in the kubelet's kubeconfig may be asked
	// Stacks has goroutine dumps taken: of the runtime and of shims that are stuck, and of the kubelet with All, else
	// where its loop stands still.
	Stacks bool
	// Dumps, when not nil, is called with the dumps as the processes wrote them.
	Dumps func([]capture.Dump)
}

// betweenLooks is the time between two reads of the kernel's counters: long enough for a share of time to mean
// something (a tick has 4 to 10 ms), short beside what a person waits.
const betweenLooks = 500 * time.Millisecond

// answerTime is how long a runtime that is well may take for all calls of a look.
const answerTime = 2 * time.Second

// lookAtNode runs the probes beside everything else. It answers before the command's time is up, whatever hangs. The
// probes that walk are left out where they may be, unless the runtime has not answered everything.
func (s *session) lookAtNode(
	ctx context.Context, env cli.Env, t *Target, processes scan, looks Looks, answered <-chan bool,
) <-chan *facts.Node {
	out := make(chan *facts.Node, 1)
	if t.Simulated() || !looks.All && !looks.Cheap {
		out <- nil
		return out
	}
	in := probes.Input{
		Root: env.Root, Population: processes, Child: host.NewChild(env.Self), Credentials: looks.Credentials,
		APIServer: looks.APIServer, Between: s.between, Before: s.before,
	}
	if t.Client != nil {
		in.RuntimeDriver, in.SandboxImage, in.Setup = t.cgroupDriver, t.sandboxImage, t.setup
	}
	if t.Kubelet != nil {
		in.KubeletPID = t.Kubelet.PID
	}
	s.walked = s.before == nil
	in.Walks = sync.OnceValue(func() bool {
		select {
		case all := <-answered:
			s.walked = !all
		case <-time.After(answerTime):
			s.walked = true
		case <-ctx.Done():
		}
		return s.walked
	})
	go func() {
		out <- probes.Run(ctx, in, func(p probes.Probe) bool { return looks.All || p.Cheap })
	}()
	return out
}

// cgroupDriver asks the runtime which cgroup driver the kubelet should use.
func (t *Target) cgroupDriver(ctx context.Context) (string, error) {
	driver, call := t.Client.CgroupDriver(ctx)
	if call.Code != crictl.Unimplemented {
		return driver, callError(call)
	}
	s, call := t.Client.Setup(ctx) // of containerd 1
	if call.OK() && s.CgroupDriver == "" {
		return "", probes.Skip("the runtime does not report its cgroup driver")
	}
	return s.CgroupDriver, callError(call)
}

// setup asks the runtime for its folders and programs, and the socket for the daemon that uses them. It waits no longer
// than a healthy runtime needs: without an answer the usual folders are read.
func (t *Target) setup(ctx context.Context) (crictl.Setup, error) {
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	s, call := t.Client.Setup(ctx)
	if call.OK() {
		s.PID = max(crictl.Probe(ctx, t.socket).PeerPID, 0)
	}
	return s, callError(call)
}

// sandboxImage asks the runtime which image it makes sandboxes of, and whether that is on the node.
func (t *Target) sandboxImage(ctx context.Context) (facts.SandboxImage, error) {
	name, call := t.Client.SandboxImage(ctx)
	switch {
	case !call.OK():
		return facts.SandboxImage{}, callError(call)
	case name == "":
		return facts.SandboxImage{}, probes.Skip("the runtime does not say which image it makes sandboxes of")
	}
	there, call := t.Client.HasImage(ctx, name)
	return facts.SandboxImage{Name: name, Absent: !there}, callError(call)
}

// callError returns in a few words why a call failed; nil when it did not.
func callError(call crictl.Call) error {
	switch {
	case call.OK():
		return nil
	case call.Hung():
		return errors.New("the runtime does not answer")
	case call.Code == crictl.Unavailable:
		return errors.New("the runtime is not available")
	}
	return fmt.Errorf("%s: %s", call.Method, call.Err)
}
