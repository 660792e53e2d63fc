// Package probes reads the host, the kubelet and the runtime for kdiag node and kdiag pleg. Each probe measures one
// thing into facts.Node; one that hangs is left behind. Probes judge nothing.
package probes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// Input has the arguments of the probes.
type Input struct {
	Root string // the host's file system as this process sees it
	// Population waits for the one scan of /proc of this run.
	Population  func(context.Context) (host.Population, error)
	Child       host.Child          // how to start a disposable child for what may hang in the kernel
	KubeletPID  int                 // 0: no kubelet runs, or none may be seen
	Credentials kubelet.Credentials // for the kubelet's server
	APIServer   bool                // the kubeconfig's server may be asked: the only connection that leaves the node
	// RuntimeDriver asks the runtime which cgroup driver to use; nil where there is no runtime to ask.
	RuntimeDriver func(context.Context) (string, error)
	// SandboxImage asks the runtime which image it makes sandboxes of, and whether that is on the node; nil as above.
	SandboxImage func(context.Context) (facts.SandboxImage, error)
	// Setup asks the runtime which folders and programs it has configured; nil as above.
	Setup func(context.Context) (crictl.RuntimeConfig, error)
	// Between is the time between two readings of a counter.
	Between time.Duration
	// Before has the findings of the probes that walk, which are then left out; nil to run every probe that is wanted.
	Before *facts.Node

	cgroups *host.CgroupFS
}

// A Probe is one look at the node. It measures; the checks and causes judge what it found.
type Probe struct {
	ID    string
	Cheap bool          // kdiag pleg does it as well
	Walks bool          // it reads all threads, control groups or mounts, of which a node may have thousands
	After []string      // ids of probes whose findings it uses; it runs without them when they hang
	Limit time.Duration // by then it is left behind
	// Start runs the probe, and returns a function that stores the reading. It may never return.
	Start func(context.Context, *Input, facts.Node) func(*facts.Node, time.Duration)
	// without stores a missing reading.
	without func(*facts.Node, facts.Reading[struct{}])
	// keep stores the reading of before.
	keep func(n, before *facts.Node)
}

// skip is the error of a look that does not apply here.
type skip struct{ why string }

func (e skip) Error() string { return e.why }

// Skip returns the error of a look that does not apply here.
func Skip(why string) error { return skip{why} }

// probe completes a Probe: it reads into one field of Node. An error beside a value is a value that is not whole.
func probe[T any](p Probe, field func(*facts.Node) *facts.Reading[T],
	read func(context.Context, *Input, facts.Node) (T, error),
) Probe {
	p.Start = func(ctx context.Context, s *Input, seen facts.Node) func(*facts.Node, time.Duration) {
		v, err := read(ctx, s, seen)
		return func(n *facts.Node, took time.Duration) {
			l := facts.Reading[T]{Value: v, OK: err == nil, Took: took}
			if err != nil {
				l.Missing = strings.ReplaceAll(err.Error(), "\n", "; ") // errors.Join puts each on a line of its own
				_, l.Skipped = errors.AsType[skip](err)
			}
			*field(n) = l
		}
	}
	p.without = func(n *facts.Node, l facts.Reading[struct{}]) {
		*field(n) = facts.Reading[T]{Missing: l.Missing, Skipped: l.Skipped, Hung: l.Hung, Took: l.Took}
	}
	p.keep = func(n, before *facts.Node) { *field(n) = *field(before) }
	return p
}

// Run makes the looks that are wanted, all at once as far as their dependencies allow, and returns when all have
// ended, or were left behind: at the latest when ctx ends.
func Run(ctx context.Context, s Input, wanted func(Probe) bool) *facts.Node {
	s.cgroups = host.NewCgroupFS(s.Root)
	return run(ctx, Probes(), s, wanted)
}

func run(ctx context.Context, probes []Probe, s Input, wanted func(Probe) bool) *facts.Node {
	var (
		mu   sync.Mutex
		node facts.Node
		all  sync.WaitGroup
	)
	ended := make(map[string]chan struct{}, len(probes))
	for _, p := range probes {
		ended[p.ID] = make(chan struct{})
	}
	for _, p := range probes {
		if !wanted(p) {
			p.without(&node, facts.Reading[struct{}]{Skipped: true, Missing: facts.NotWanted})
			close(ended[p.ID])
		}
	}
	for _, p := range probes {
		if !wanted(p) {
			continue
		}
		all.Go(func() {
			defer close(ended[p.ID])
			for _, id := range p.After {
				select {
				case <-ended[id]:
				case <-ctx.Done():
				}
			}
			if p.Walks && s.Before != nil {
				mu.Lock()
				defer mu.Unlock()
				if p.keep(&node, s.Before); slices.Contains(s.Before.Hung, p.ID) {
					node.Hung = append(node.Hung, p.ID)
				}
				return
			}
			mu.Lock()
			seen := node
			mu.Unlock()
			note := look(ctx, p, &s, seen)
			mu.Lock()
			defer mu.Unlock()
			note(&node)
		})
	}
	all.Wait()
	slices.Sort(node.Hung)
	return &node
}

const (
	// returnMargin is the time between the end of a probe's context and its limit, so that a partial reading is not
	// lost.
	returnMargin = 100 * time.Millisecond
	// leastHang is the shortest time that a look hangs for. One that began late, when the command's time was nearly
	// up, shows nothing by not having ended.
	leastHang = time.Second
)

// look makes one look and returns how to note it. A look of before that is still under way, as the Guard of the context
// knows, is not repeated.
func look(ctx context.Context, p Probe, s *Input, seen facts.Node) func(*facts.Node) {
	began := time.Now()
	end := began.Add(p.Limit)
	if last, ok := ctx.Deadline(); ok && last.Before(end) {
		end = last
	}
	grace := min(returnMargin, time.Until(end)/4)
	ctx, cancel := context.WithDeadline(ctx, end.Add(-grace))
	defer cancel()
	note, err := deadline.RunGrace(ctx, p.ID, grace, func(ctx context.Context) (func(*facts.Node, time.Duration), error) {
		return p.Start(ctx, s, seen), nil
	})
	took := time.Since(began)
	if err == nil {
		return func(n *facts.Node) { note(n, took) }
	}
	missing := facts.Reading[struct{}]{Missing: err.Error(), Took: took} // a panic
	if late, ok := errors.AsType[*deadline.AbandonedError](err); ok {
		missing.Took = time.Since(late.Since)
		missing.Hung = missing.Took >= min(leastHang, p.Limit)
		missing.Missing = "the command ended first"
		if missing.Hung {
			missing.Missing = "outstanding for " + units.Duration(missing.Took)
		}
	}
	return func(n *facts.Node) {
		p.without(n, missing)
		if missing.Hung {
			n.Hung = append(n.Hung, p.ID)
		}
	}
}

// The time that probes get. Reading /proc takes milliseconds; a disk that is throttled takes seconds for a write and is
// to be measured, not given up; systemd and children get what a person would wait.
const (
	quickLook = 2 * time.Second
	longLook  = 5 * time.Second
)

// populationID is the id of the probe that most probes of processes wait for.
const populationID = "host.population"

// Probes returns every look at the node besides the runtime's socket and the logs. docs/checks.md describes them.
func Probes() []Probe {
	return slices.Concat(processProbes(), resourceProbes(), limitProbes(), kubeletProbes())
}
