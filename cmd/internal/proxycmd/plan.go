package proxycmd

import (
	"context"
	"fmt"
	"os"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// maxFile bounds a file of faults, in bytes.
const maxFile = 4 << 20

// faultHelp explains the language of --fault.
const faultHelp = `A fault is written as  RPC,ACTION[,TARGET...][,TIME...]  without blanks around the commas, for example

  ContainerStatus,hang,pod=web-*,from=10s,until=1m
  RunPodSandbox,error="Unavailable: not now, later",first=3
  ListContainers,oversize=17MiB,every=1m,for=10s

RPC is a name of CRI v1 or a pattern: ContainerStatus, List*, *Image*, *.

ACTION:
  hang             the call is never answered; it ends when the caller gives up
  hang,thaw        the call continues when the fault's time is over, as after a daemon was frozen
  delay=DURATION   the call is delayed by this
  error=TEXT       the call fails at once: a gRPC code, a colon and the message
  drop             the runtime does its work, and the connection is cut instead of the answer, as when the daemon dies
  oversize=SIZE    the answer is padded to this size, such as 17MiB; a kubelet takes 16MiB

TARGET, as patterns; without any, every call:
  pod=NAME  namespace=NAME  container=NAME  id=ID  sandbox (the pod's sandbox only)

TIME, counted from the start of the proxy:
  from=DURATION  until=DURATION      only then
  every=DURATION,for=DURATION        for so long in each such period
  first=N  after=N                   only the first N calls; only after N calls

A value with a comma in it goes in double quotes. The first fault that matches applies.
`

// A plan is the initial state of the proxy.
type plan struct {
	fake.Mischief
	name string // of the scenario, if any
	pods bool   // the scenario has pods of its own
	down bool   // nothing listens
}

// plan reads what the flags ask for.
func (o *options) plan(ctx context.Context) (plan, error) {
	var p plan
	for _, text := range o.faults {
		f, err := fault.Parse(text)
		if err != nil {
			return plan{}, &cli.UsageError{
				Problem: fmt.Sprintf("--fault %q: %v", text, err),
				Hint:    "kdiag proxy --fault help explains the language",
			}
		}
		p.Faults = append(p.Faults, f)
	}
	switch {
	case o.file != "":
		read, err := readFaults(o.file)
		if err != nil {
			return plan{}, err
		}
		p.Faults, p.Latency, p.Conditions = append(p.Faults, read.Faults...), read.Latency, read.Conditions
	case o.scenario != "":
		s, err := target.Scenario(ctx, o.scenario)
		if err != nil {
			return plan{}, err
		}
		switch s.Socket {
		case fake.SocketListen:
		case fake.SocketRefuse:
			p.down = true
		default:
			return plan{}, &cli.UsageError{
				Problem: fmt.Sprintf("scenario %s is about a socket that is %s, which a proxy cannot simulate", s.Name, s.Socket),
				Hint:    "use kdiag runtime serve --simulate",
			}
		}
		p.name, p.pods = s.Name, len(s.Pods) > 0
		p.Faults, p.Latency, p.Conditions = append(p.Faults, s.Faults...), s.Latency, s.Conditions
	}
	return p, nil
}

func readFaults(name string) (fake.Mischief, error) {
	var m fake.Mischief
	info, err := os.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		err = fmt.Errorf("%s is not a regular file, or is too large", name)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	if err == nil {
		if m, err = fake.ParseMischief(data); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	if err != nil {
		return m, &cli.UsageError{
			Problem: fmt.Sprintf("--faults: %v", err),
			Hint:    "a file holds the lists latency, faults and conditions as in a scenario: kdiag runtime serve --help shows them",
		}
	}
	return m, nil
}
