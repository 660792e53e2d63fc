package proxycmd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// maxFile bounds a file of faults, in bytes.
const maxFile = 4 << 20

// faultHelp explains the language of --fault.
const faultHelp = `A fault is written as  RPC,DEED[,WHOM...][,WHEN...]  without blanks around the commas, for example

  ContainerStatus,hang,pod=web-*,from=10s,until=1m
  RunPodSandbox,error="Unavailable: not now, later",first=3
  ListContainers,oversize=17MiB,every=1m,for=10s

RPC is a name of CRI v1 or a pattern: ContainerStatus, List*, *Image*, *.

What goes wrong:
  hang             the call is never answered; it ends when the caller gives up
  hang,thaw        the call goes on once the fault's time is over, as after a daemon was frozen
  delay=DURATION   the call goes to the runtime so much later
  error=TEXT       it fails at once: a gRPC code, a colon and the message
  drop             the runtime does it, and the connection is cut in place of the answer, as when the daemon dies
  oversize=SIZE    the answer is padded to this size, such as 17MiB; a kubelet takes 16MiB

Whom it must be about; patterns. Without any, every call:
  pod=NAME  namespace=NAME  container=NAME  id=ID  sandbox (the pod's sandbox only)

When; times count from the start of the proxy:
  from=DURATION  until=DURATION      in force only then
  every=DURATION,for=DURATION        in force for so long in each such period
  first=N  after=N                   only the first N calls; not before N calls have passed

A value with a comma in it goes in double quotes. The first fault that matches wins.
`

// A plan is what the proxy is to do at first.
type plan struct {
	fake.Mischief
	name string // of the scenario; empty for none
	pods bool   // the scenario has pods of its own
	down bool   // nobody listens
}

// plan reads what the flags ask for.
func (o *options) plan(ctx context.Context) (plan, error) {
	var p plan
	for _, text := range o.faults {
		f, err := fault.Parse(text)
		if err != nil {
			return plan{}, &cli.UsageError{Problem: fmt.Sprintf("--fault %q: %v", text, err), Hint: "kdiag proxy --fault help explains the language"}
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
				Problem: fmt.Sprintf("scenario %s is about a socket that is %s, which a proxy cannot play", s.Name, s.Socket),
				Hint:    "kdiag runtime serve --simulate plays it",
			}
		}
		p.name, p.pods = s.Name, len(s.Pods) > 0
		p.Faults, p.Latency, p.Conditions = append(p.Faults, s.Faults...), s.Latency, s.Conditions
	}
	return p, nil
}

func readFaults(name string) (fake.Mischief, error) {
	bad := func(err error) (fake.Mischief, error) {
		return fake.Mischief{}, &cli.UsageError{
			Problem: fmt.Sprintf("--faults: %v", err),
			Hint:    "a file holds the lists latency, faults and conditions as in a scenario: kdiag runtime serve --help shows them",
		}
	}
	info, err := os.Stat(name)
	if err != nil {
		return bad(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return bad(fmt.Errorf("%s is no regular file, or too large", name))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return bad(err)
	}
	m, err := fake.ParseMischief(data)
	if err != nil {
		return bad(fmt.Errorf("%s: %w", name, err))
	}
	return m, nil
}

// usageOf makes a usage error of one about an endpoint.
func usageOf(err error, prefix string) error {
	if bad, ok := errors.AsType[*crictl.EndpointError](err); ok {
		return &cli.UsageError{Problem: prefix + bad.Error(), Hint: bad.Hint}
	}
	return err
}

// noRuntime says what to do when there is nothing to stand in front of.
func noRuntime(err error) error {
	if _, ok := errors.AsType[*crictl.NoEndpointError](err); ok {
		return &cli.UsageError{
			Problem: "no runtime socket was found to stand in front of",
			Hint:    "name one with --runtime-endpoint; kdiag runtime serve keeps the embedded runtime up on one",
		}
	}
	return err
}
