package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/capture"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

// The time for what is read beside the runtime's calls.
const (
	// hostTimeout bounds the scan of /proc: enough for tens of thousands of processes, and little beside an RPC
	// deadline.
	hostTimeout = 4 * time.Second
	// againTimeout bounds the second read of the processes that matter, which comes when the answer is due.
	againTimeout = 300 * time.Millisecond
	// journalTimeout and journalShare, a part of the command's time, bound the reading of the node's logs. A healthy
	// journal gives its last quarter of an hour in milliseconds; the verdict must not wait for a disk that hangs.
	journalTimeout = 5 * time.Second
	journalShare   = 3
)

// A scan waits for the one scan of /proc of a run.
type scan func(context.Context) (host.Population, error)

// gather collects the facts. When the runtime cannot be found the error is a *crictl.NoEndpointError, and the logs and
// the host are all that there is.
func gather(ctx context.Context, env cli.Env, f *cli.Flags, q Question) (*facts.Input, error) {
	s := session{
		logs: journal.Recent, between: betweenLooks,
		open: func(ctx context.Context) (*Target, func(), error) {
			t, err := Open(ctx, env, f)
			if err != nil {
				return nil, nil, err
			}
			return t, t.Close, nil
		},
		measure: func(ctx context.Context, t *Target, opts plegbench.Options) *plegbench.Measurement {
			return plegbench.Measure(ctx, t.socket, t.Client, opts)
		},
	}
	return s.gather(ctx, env, f, q)
}

// A session is how a node is asked: for one answer, or again and again by a Watch.
type session struct {
	open    func(context.Context) (t *Target, release func(), _ error)
	measure func(context.Context, *Target, plegbench.Options) *plegbench.Measurement
	logs    readLogs
	between time.Duration // of two reads of the kernel's counters
	before  *facts.Node   // of a Watch, where what takes long to read need not be read again; else nil
	walked  bool          // it was
	people  host.Population
}

// readLogs reads what the logs below a root hold since an instant.
type readLogs = func(ctx context.Context, root string, since time.Time) (*journal.Report, error)

func (s *session) gather(ctx context.Context, env cli.Env, f *cli.Flags, q Question) (*facts.Input, error) {
	asking, rpc := f.Budget()
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	q.Limits.RPCTimeout, q.Measure.RPCTimeout = rpc, rpc
	q.Measure.Probe = crictl.Dialer(env.Sockets.Dial).Probe
	in := &facts.Input{
		Now: env.Now(), Limits: q.Limits, NoSystemd: NoSystemd(env), HostMissing: "the runtime is simulated",
	}
	logs := lookAtJournal(ctx, env, f, q.Limits.JournalWindow, s.logs)
	t, release, err := s.open(ctx)
	if err != nil {
		if _, none := errors.AsType[*crictl.NoEndpointError](err); !none {
			return in, err
		}
		t, release = newTarget(), func() {}
	}
	defer release()
	var processes scan
	if !t.Simulated() {
		processes, in.Kernel = scanProcesses(ctx, env.Root, s.people), host.KernelRelease(env.Root)
	}
	log := cli.Log(env, f.Verbose)
	dumps := newDumper(env, t, processes, capture.Input{
		Credentials: q.Looks.Credentials, APIServer: q.Looks.APIServer,
		Say: func(what string) { log.Debug("goroutine dump", "next", what) },
	})
	dumps.start(ctx, q.Looks)
	answered := make(chan bool, 1)
	node := s.lookAtNode(ctx, env, t, processes, q.Looks, answered)
	if t.Client != nil {
		s.ask(ctx, t, in, q.Measure, processes)
	}
	answered <- in.Measurement.Answered()
	t.dumpNow(false)
	if !t.Simulated() {
		s.people = readProcesses(ctx, in, processes)
	}
	l := <-logs
	in.Journal, in.JournalProblem = l.report, l.missing
	in.Node = <-node
	in.Summarize()
	in.Now = env.Now()
	dumps.analyse(ctx, in)
	logFacts(log, t, in)
	return in, err
}

// ask has the runtime asked.
func (s *session) ask(ctx context.Context, t *Target, in *facts.Input, opts plegbench.Options, processes scan) {
	in.Runtime, in.Kubelet, in.NotTaken = t.Runtime(), t.Kubelet, t.NotTaken
	opts.Hints = func(ctx context.Context) []plegbench.Hint { return t.hints(ctx, processes) }
	opts.Streaming = t.Kubelet != nil && t.Kubelet.CRIListStreaming
	in.Measurement = s.measure(ctx, t, opts)
	if v := in.Measurement.Version; v != nil {
		in.Runtime.Name = shorten(v.RuntimeName)
		in.Runtime.Version, in.Runtime.APIVersion = shorten(v.RuntimeVersion), shorten(v.RuntimeAPIVersion)
	}
}

// readProcesses reads the processes that matter a second time: their states are worth most at the moment at which calls
// hang, which may be after the start. The peer is the process that listens on the socket, where it is none of them.
func readProcesses(ctx context.Context, in *facts.Input, processes scan) (all host.Population) {
	all, _ = processes(ctx)
	short, cancel := context.WithTimeout(ctx, againTimeout)
	defer cancel()
	again, err := all.Again(short)
	in.Processes, in.HostMissing = again, ""
	if err != nil {
		in.HostMissing = err.Error()
	}
	if in.Measurement == nil {
		return all
	}
	pid := in.Measurement.Connect.PeerPID
	if pid <= 1 || slices.ContainsFunc(again, func(p host.Process) bool { return p.PID == pid }) {
		return all
	}
	if p, err := all.One(pid); err == nil {
		in.Peer = &p
	}
	return all
}

// NoSystemd reports whether something else than systemd runs this host, for what is to be typed there.
func NoSystemd(env cli.Env) bool { return errors.Is(host.FindSystemd(env.Root), host.ErrNoSystemd) }

// shorten bounds what a runtime calls itself. No real one comes near; a broken one must not fill the report.
func shorten(s string) string { return crictl.Shorten(s, 128) }

// scanProcesses starts the scan of /proc. A service passes that of the look before.
func scanProcesses(ctx context.Context, root string, before host.Population) scan {
	var names host.Names
	for _, in := range crictl.Installations() {
		names.Runtimes = append(names.Runtimes, in.Processes...)
		names.Shims = append(names.Shims, in.Shims...)
		names.DataDirs = append(names.DataDirs, in.DataDir)
		names.StateDirs = append(names.StateDirs, in.StateDir)
	}
	done := make(chan struct{})
	var all host.Population
	var err error
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, hostTimeout)
		defer cancel()
		all, err = deadline.Run(ctx, "listing the processes", func(ctx context.Context) (host.Population, error) {
			return host.ReadPopulation(ctx, root, names, before)
		})
	}()
	return func(ctx context.Context) (host.Population, error) {
		select {
		case <-done:
			return all, err
		case <-ctx.Done():
			return host.Population{}, ctx.Err()
		}
	}
}

// hints finds sandboxes and containers without the runtime's help.
func (t *Target) hints(ctx context.Context, processes scan) []plegbench.Hint {
	var list []plegbench.Hint
	add := func(kind, id, name, namespace, pod, uid string) {
		list = append(list, plegbench.Hint{
			Kind: kind, ID: id, Name: name, Pod: crictl.Pod{Namespace: namespace, Name: pod, UID: uid},
		})
	}
	if t.Simulated() {
		for _, r := range t.fake.Records() {
			add(plegbench.KindContainer, r.ID, r.Name, r.Namespace, r.Pod, r.PodUID)
		}
		return list
	}
	all, _ := processes(ctx) // what is missing of it means fewer hints
	objects, _ := deadline.Run(ctx, "reading the bundles of shims",
		func(ctx context.Context) ([]host.Object, error) { return all.Objects(ctx), nil })
	for _, o := range objects {
		add(o.Kind, o.ID, o.Name, o.Namespace, o.Pod, o.PodUID)
	}
	return list
}

// A journalView is what the node's logs hold, or why they could not be read.
type journalView struct {
	report  *journal.Report
	missing string
}

// lookAtJournal reads the node's logs of the last window beside everything else, with read, which is journal.Recent
// outside tests. It answers within its own deadline, whatever hangs; what still reads then is abandoned.
func lookAtJournal(
	ctx context.Context, env cli.Env, f *cli.Flags, window time.Duration, read readLogs,
) <-chan journalView {
	out := make(chan journalView, 1)
	switch {
	case f.Simulate != "":
		out <- journalView{missing: "the runtime is simulated"}
		return out
	case window <= 0:
		out <- journalView{}
		return out
	}
	asking, _ := f.Budget()
	timeout, now := min(asking/journalShare, journalTimeout), env.Now()
	go func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		report, err := deadline.Run(ctx, "reading the logs", func(ctx context.Context) (*journal.Report, error) {
			report, err := read(ctx, env.Root, now.Add(-window))
			if report != nil && report.Status == "" { // a Watch may have the one of the look before again
				judge.Journal(report)
				if report.GeneratedAt.IsZero() {
					report.GeneratedAt = now
				}
			}
			return report, err
		})
		view := journalView{report: report}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			view.missing = fmt.Sprintf("it took longer than %v", timeout.Round(time.Millisecond))
		case err != nil:
			view.missing = shorten(err.Error())
		case report == nil:
			view.missing = "there is none"
		}
		out <- view
	}()
	return out
}

// logFacts writes what was found to kdiag's own log.
func logFacts(log *slog.Logger, t *Target, in *facts.Input) {
	log.Debug("endpoint", "found", t.Endpoint, "passed over", t.Tried)
	if k := t.Kubelet; k != nil {
		log.Debug("kubelet", "pid", k.PID, "config", k.ConfigPath, "unreadable", k.Unreadable)
	}
	if m := in.Measurement; m != nil {
		log.Debug("connect", "result", m.Connect)
		calls := slices.Clone(m.Probes)
		for _, s := range m.Samples {
			calls = append(calls, s.Sandboxes, s.Containers)
		}
		for _, i := range m.Sweep.Inspections {
			calls = append(calls, i.Call)
		}
		for _, c := range calls {
			log.Debug("call", "rpc", c.Method, "object", c.Object, "elapsed", c.Elapsed, "code", c.Code,
				"bytes", c.Bytes, "err", c.Err)
		}
	}
	if in.Journal != nil {
		for _, c := range in.Journal.Signatures {
			log.Debug("journal", "code", c.Code, "count", c.Count, "last", c.Last)
		}
	}
	log.Debug("journal", "problem", in.JournalProblem)
}
