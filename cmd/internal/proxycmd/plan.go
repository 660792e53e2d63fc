package proxycmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// faultHelp explains the language of --fault.
const faultHelp = `A fault is written as  RPC,ACTION[,TARGET...][,TIME...]  without blanks around the commas,
for example

  ContainerStatus,hang,pod=web-*,from=10s,until=1m
  RunPodSandbox,error="Unavailable: not now, later",first=3
  ListContainers,oversize=17MiB,every=1m,for=10s

RPC is a name of CRI v1 or a pattern: ContainerStatus, List*, *Image*, *.

ACTION:
  hang             no reply; the call ends when the caller gives up
  hang,thaw        the call continues when the fault ends, as after a daemon was frozen
  delay=DURATION   the call is delayed by this time
  error=TEXT       the call fails at once: a gRPC code, a colon and the message
  drop             the runtime does the work, then the connection is cut before the reply, as when the daemon dies
  oversize=SIZE    the reply is padded to this size, such as 17MiB; a kubelet accepts 16MiB

TARGET, as patterns; without one, every call:
  pod=NAME  namespace=NAME  container=NAME  id=ID  sandbox (the pod's sandbox only)

TIME, counted from the start of the proxy:
  from=DURATION  until=DURATION      only then
  every=DURATION,for=DURATION        for this long in each period
  first=N  after=N                   only the first N calls; only after N calls

Put a value with a comma in double quotes. The first fault that matches applies.
`

// plan returns the initial state of the proxy: a scenario of which only the faults, latencies, conditions and the
// socket matter.
func (o *options) plan(ctx context.Context) (fake.Scenario, error) {
	var plan fake.Scenario
	if source := cmp.Or(o.file, o.scenario); source != "" {
		var err error
		if plan, err = target.Scenario(ctx, source); err != nil {
			return plan, err
		}
	}
	var faults []fake.Fault
	for _, text := range o.faults {
		f, err := fault.Parse(text)
		if err != nil {
			return plan, cli.Usage(fmt.Sprintf("--fault %q: %v", text, err),
				"kdiag proxy --fault help explains the language")
		}
		faults = append(faults, f)
	}
	plan.Faults = append(faults, plan.Faults...)
	return plan, cli.Reject(plan.Socket != fake.SocketListen && plan.Socket != fake.SocketRefuse,
		fmt.Sprintf("scenario %s needs a socket that is %s; a proxy cannot simulate that", plan.Name, plan.Socket),
		"use kdiag runtime serve --simulate")
}
