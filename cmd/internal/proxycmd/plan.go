package proxycmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/crictl/fake"
)

// faultHelp explains --fault.
const faultHelp = `A fault is a line of YAML with the fields of a scenario's fault, for example

  rpc: ContainerStatus, hang: true, object: {pod: web-*}, from: 10s, until: 1m
  rpc: RunPodSandbox, error: "Unavailable: not now", first: 3
  rpc: ListContainers, oversize: 17825792, every: 1m, for: 10s

rpc is a name of CRI v1 or a pattern: ContainerStatus, List*, "*Image*", "*".

One of:
  hang: true             no reply; the call ends when the caller gives up
  hang: true, thaw: true the call continues when the fault ends, as after a daemon was frozen
  delay: DURATION        the call is delayed by this time
  error: "CODE: TEXT"    the call fails at once with a gRPC code and a message
  drop: true             the runtime does the work, then the connection is cut before the reply
  oversize: BYTES        the reply is padded to this size; a kubelet accepts 16777216

object selects calls, by patterns; without it, every call:
  object: {pod: NAME, namespace: NAME, container: NAME, id: ID, sandbox: true}

When, counted from the start of the proxy:
  from: DURATION, until: DURATION      only then
  every: DURATION, for: DURATION       for this long in each period
  first: N, after: N                   only the first N calls; only after N calls

The first fault that matches applies.
`

// plan returns the initial state of the proxy: a scenario of which only the faults, latencies, conditions and the
// socket matter.
func (o *options) plan(ctx context.Context) (fake.Scenario, error) {
	var plan fake.Scenario
	if source := cmp.Or(o.file, o.scenario); source != "" {
		var err error
		if plan, err = connection.Scenario(ctx, source); err != nil {
			return plan, err
		}
	}
	var faults []fake.Fault
	for _, text := range o.faults {
		f, err := fake.ParseFault(text)
		if err != nil {
			return plan, cli.Usage(fmt.Sprintf("--fault %q: %v", text, err),
				"kdiag proxy --fault help explains the fields")
		}
		faults = append(faults, f)
	}
	plan.Faults = append(faults, plan.Faults...)
	return plan, nil
}
