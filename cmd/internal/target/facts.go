package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

const (
	// hostTimeout bounds the scan of /proc: enough for tens of thousands of processes, and little beside an RPC deadline.
	hostTimeout = 4 * time.Second
	// againTimeout bounds the second read of the processes that matter, which comes when the answer is due.
	againTimeout = 300 * time.Millisecond
)

// Gather asks the runtime, the node and the logs at the same time and returns what the judge needs. It ends with the flags'
// timeout whatever hangs. A runtime that cannot be found or opened is a fact too: the error then says why, and the
// facts hold what there is.
func Gather(
	ctx context.Context, env cli.Env, f *cli.Flags, opts plegbench.Options, limits checks.Limits, looks Looks,
) (*facts.Input, error) {
	asking, rpc := f.Budget()
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	limits.RPCTimeout = rpc
	facts := &facts.Input{Limits: limits, NoSystemd: NoSystemd(env)}
	log := cli.Log(env, f.Verbose)

	logs := lookAtJournal(ctx, env, f, limits.JournalWindow, journal.Recent)
	t, err := Open(ctx, env, f)
	if err != nil {
		if _, none := errors.AsType[*crictl.NoEndpointError](err); none {
			// Without a runtime to ask, the logs and the host are all that there is.
			people := scanProcesses(ctx, env.Root)
			node := lookAtNode(ctx, env, &Target{}, people, looks)
			all, missing := people(ctx)
			said := <-logs
			facts.Processes, facts.HostMissing = all.Processes(), hostMissing(missing)
			facts.Journal, facts.JournalProblem = said.report, said.missing
			facts.Node = <-node
		}
		facts.Now = env.Now()
		return facts, err
	}
	defer t.Close()
	people := scanProcesses(ctx, env.Root)
	if t.Simulated() {
		people = nil
	}
	node := lookAtNode(ctx, env, t, people, looks)
	facts.Runtime, facts.Kubelet, facts.NotTaken = t.Runtime(), t.Kubelet, t.NotTaken
	logDiscovery(log, t)

	opts.Hints = func(ctx context.Context) []plegbench.Hint { return t.hints(ctx, people) }
	opts.RPCTimeout = rpc
	opts.Streaming = t.Kubelet != nil && t.Kubelet.CRIListStreaming
	facts.Measurement = plegbench.Measure(ctx, t.socket, t.Client, opts)
	facts.Summary = plegbench.Summarize(facts.Measurement, t.Kubelet)
	facts.HostMissing = "the runtime is simulated"
	if !t.Simulated() {
		all, _ := people(ctx)
		// States of processes are worth most at the moment at which calls hang, which may be after the start.
		short, cancel := context.WithTimeout(ctx, againTimeout)
		again, missing := all.Again(short)
		cancel()
		facts.Processes, facts.HostMissing = again, hostMissing(missing)
		facts.Peer = otherProcess(all, facts)
	}
	said := <-logs
	facts.Journal, facts.JournalProblem = said.report, said.missing
	facts.Node = <-node
	facts.Now = env.Now()
	if v := facts.Measurement.Version; v != nil {
		facts.Runtime.Name = shorten(v.RuntimeName)
		facts.Runtime.Version, facts.Runtime.APIVersion = shorten(v.RuntimeVersion), shorten(v.RuntimeAPIVersion)
	}
	logMeasurement(log, facts.Measurement)
	logJournal(log, facts)
	return facts, nil
}

// NoSystemd reports whether something else than systemd runs this host, for what is to be typed there.
func NoSystemd(env cli.Env) bool { return errors.Is(host.FindSystemd(env.Root), host.ErrNoSystemd) }

// otherProcess returns the process that listens on the socket, where it is none of those that matter to a runtime.
func otherProcess(people host.Population, f *facts.Input) *host.Process {
	pid := f.Measurement.Connect.PeerPID
	if pid <= 1 || slices.ContainsFunc(f.Processes, func(p host.Process) bool { return p.PID == pid }) {
		return nil
	}
	p, err := people.One(pid)
	if err != nil {
		return nil
	}
	return &p
}

// shorten bounds what a runtime calls itself. No real one comes near; a broken one must not fill the report.
func shorten(s string) string { return crictl.Shorten(s, 128) }

// scanProcesses starts the one scan of /proc of a run, and returns how to wait for it.
func scanProcesses(ctx context.Context, root string) func(context.Context) (host.Population, error) {
	done := make(chan struct{})
	var people host.Population
	var err error
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, hostTimeout)
		defer cancel()
		people, err = deadline.Run(ctx, func(ctx context.Context) (host.Population, error) {
			return host.ReadPopulation(ctx, root, runtimeNames())
		})
	}()
	return func(ctx context.Context) (host.Population, error) {
		select {
		case <-done:
			return people, err
		case <-ctx.Done():
			return host.Population{}, ctx.Err()
		}
	}
}

// runtimeNames returns what the runtimes of the known installations are recognised by.
func runtimeNames() host.Names {
	var n host.Names
	for _, in := range crictl.Installations() {
		n.Runtimes = append(n.Runtimes, in.Processes...)
		n.Shims = append(n.Shims, in.Shims...)
		n.DataDirs = append(n.DataDirs, in.DataDir)
		n.StateDirs = append(n.StateDirs, in.StateDir)
	}
	return n
}

// hostMissing words why there is no list of processes, or not all of it.
func hostMissing(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("processes of this host: %v", err)
}

// hints finds sandboxes and containers without the runtime's help.
func (t *Target) hints(ctx context.Context, people func(context.Context) (host.Population, error)) []plegbench.Hint {
	var list []plegbench.Hint
	if t.Simulated() {
		for _, r := range t.fake.Records() {
			list = append(list, plegbench.Hint{
				Kind: plegbench.KindContainer, ID: r.ID, Name: r.Name,
				Pod: crictl.Pod{Namespace: r.Namespace, Name: r.Pod, UID: r.PodUID},
			})
		}
		return list
	}
	all, _ := people(ctx) // what is missing of it means fewer hints
	objects, _ := deadline.Run(ctx, func(ctx context.Context) ([]host.Object, error) { return all.Objects(ctx), nil })
	for _, o := range objects {
		list = append(list, plegbench.Hint{
			Kind: o.Kind, ID: o.ID, Name: o.Name,
			Pod: crictl.Pod{Namespace: o.Namespace, Name: o.Pod, UID: o.PodUID},
		})
	}
	return list
}

// Header returns the head of a JSON document of the given kind.
func Header(env cli.Env, kind string) checks.Header {
	name, err := env.Hostname()
	if err != nil {
		name = ""
	}
	return checks.Header{
		APIVersion: checks.APIVersion, Kind: kind, GeneratedAt: env.Now().UTC().Truncate(time.Second),
		Host: name, KdiagVersion: Version(),
	}
}

// Version returns kdiag's version: the module's, as the Go command stamps it into the binary, with the commit where it
// is no release.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return info.Main.Version
}

func logDiscovery(log *slog.Logger, t *Target) {
	for _, tried := range t.Tried {
		log.Debug("endpoint passed over", "source", tried.Source, "what", tried.What, "why", tried.Why)
	}
	log.Debug("endpoint", "url", t.Endpoint.URL, "source", t.Endpoint.Source, "reason", t.Endpoint.Reason)
	if k := t.Kubelet; k != nil {
		log.Debug("kubelet", "pid", k.PID, "config", k.ConfigPath, "requestTimeout", k.RequestTimeout,
			"eventedPLEG", k.EventedPLEG, "criListStreaming", k.CRIListStreaming, "unreadable", k.Unreadable)
	}
}

func logJournal(log *slog.Logger, f *facts.Input) {
	if f.Journal == nil {
		log.Debug("journal", "missing", f.JournalProblem)
		return
	}
	log.Debug("journal", "lines", f.Journal.Lines, "episodes", len(f.Journal.Episodes), "sources", len(f.Journal.Sources), "problem", f.JournalProblem)
	for _, c := range f.Journal.Signatures {
		log.Debug("journal", "code", c.Code, "count", c.Count, "last", c.Last)
	}
}

func logMeasurement(log *slog.Logger, m *plegbench.Measurement) {
	log.Debug("connect", "state", m.Connect.State, "elapsed", m.Connect.Elapsed, "pid", m.Connect.PeerPID, "err", m.Connect.Err)
	call := func(what string, c crictl.Call) {
		log.Debug(what, "rpc", c.Method, "object", c.Object, "elapsed", c.Elapsed, "code", c.Code, "bytes", c.Bytes, "err", c.Err)
	}
	for _, c := range m.Probes {
		call("probe", c)
	}
	for _, s := range m.Samples {
		call("relist", s.Sandboxes)
		call("relist", s.Containers)
	}
	for _, i := range m.Sweep.Inspections {
		call("inspect", i.Call)
	}
	if m.Interrupted != "" {
		log.Debug("interrupted", "why", m.Interrupted)
	}
}
