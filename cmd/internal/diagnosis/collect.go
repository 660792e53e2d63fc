package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/capture"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/probes"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/dumps"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// Deadlines of the reads that run beside the calls to the runtime.
const (
	// rereadTimeout bounds the second read of the processes that matter, which comes when the answer is due.
	rereadTimeout = 300 * time.Millisecond
	// journalTimeout and journalShare, a part of the command's time, bound the reading of the node's logs. A healthy
	// journal gives its last quarter of an hour in milliseconds; the verdict must not wait for a disk that hangs.
	journalTimeout = 5 * time.Second
	journalShare   = 3
	// dumpTimeout bounds the goroutine dumps of the runtime and the shims, and those of the kubelet: a daemon writes ten
	// thousand goroutines in a second, and a stuck one never does.
	dumpTimeout = 8 * time.Second
	// maxPlugins bounds the CNI plugins whose locks are read.
	maxPlugins = 5
	// answerTime is how long a healthy runtime may take for all calls.
	answerTime = 2 * time.Second
	// countersApart is the time between two reads of the kernel's counters: long enough for a share of time to mean
	// something (a tick has 4 to 10 ms), short for a person who waits.
	countersApart = 500 * time.Millisecond
)

// A Collection is what was collected from a node. It does not change any more.
type Collection struct {
	Facts    *facts.Input
	Problems []string       // why kdiag could not collect
	Dumps    []capture.Dump // as the processes wrote them; Facts have their analysis
	Recorded string         // the time since which the agent has recorded a problem that goes on; empty for none
}

// Collect collects from the runtime that the flags mean, from the node and from its logs, with progress on standard
// error. It ends with the flags' timeout whatever hangs. A runtime that cannot be found or opened is a problem of the
// collection. The error is one of usage, or of kdiag itself.
func Collect(ctx context.Context, env cli.Env, f *cli.Flags, r Request) (*Collection, error) {
	ctx, cancel := f.Within(ctx)
	defer cancel()
	progress := document.NewProgress(env)
	defer progress.Done()
	r.Measure.Progress = progress.Update
	conn, err := connection.Open(ctx, env, f)
	if err == nil {
		defer conn.Close()
	}
	c := collector{env: env, flags: f, request: r, between: countersApart, logs: journal.Recent}
	return c.collect(ctx, conn, err, f.Output)
}

// A collector collects once, or, for a Watch, again and again.
type collector struct {
	env     cli.Env
	flags   *cli.Flags
	request Request
	between time.Duration // between two reads of the kernel's counters
	logs    func(ctx context.Context, root string, since time.Time) (*journal.Report, error)

	// Of a Watch:
	monitor   *plegbench.Monitor // in place of plegbench.Measure
	closely   bool
	before    *facts.Node // has the findings of walks that need not be repeated; nil to repeat them
	processes host.Population
	killed    kill

	scan *connection.Scan // nil in a simulation
}

// collect collects from all sources at the same time. opened is the error of opening conn: if no runtime was found, the
// host and the logs are collected. Any other error is a problem of the collection if the format is that of a program.
func (c *collector) collect(
	ctx context.Context, conn *connection.Connection, opened error, format string,
) (*Collection, error) {
	problems, err := connection.Problems(opened, format)
	if err != nil {
		return nil, err
	}
	if conn == nil {
		conn = &connection.Connection{}
	}
	in := &facts.Input{
		Now: c.env.Now(), Limits: c.request.Limits, HostMissing: "the runtime is simulated",
		NoSystemd: errors.Is(host.FindSystemd(c.env.Root), host.ErrNoSystemd),
	}
	_, in.Limits.RPCTimeout = c.flags.Budget()
	node := &Collection{Facts: in, Problems: problems}
	if _, none := errors.AsType[*crictl.NoEndpointError](opened); opened != nil && !none {
		return node, nil
	}
	in.Runtime, in.Kubelet, in.NotTaken = conn.Runtime(), conn.Kubelet, conn.NotTaken
	if c.scan = nil; !conn.Simulated() {
		c.scan, in.Kernel = connection.StartScan(ctx, c.env.Root, c.processes), host.KernelRelease(c.env.Root)
	}
	began, quota := time.Now(), host.Throttling{}
	if !conn.Simulated() {
		quota, _ = host.OwnQuota(c.env.Root)
	}
	var work sync.WaitGroup
	work.Go(func() { in.Journal, in.JournalProblem = c.readLogs(ctx) })
	work.Go(func() { node.Recorded = c.readRecords(ctx) })
	var runtimeDumps, kubeletDump []capture.Dump
	measured := make(chan struct{})
	work.Go(func() { runtimeDumps = c.captureRuntime(ctx, conn, measured) })
	probe := func() {
		in.Node = c.probe(ctx, conn)
		kubeletDump = c.captureKubelet(ctx, conn, in.Node)
	}
	if c.before == nil {
		work.Go(probe)
	} else {
		work.Go(func() { // a runtime that does not answer, or not soon, makes the walks due
			select {
			case <-measured:
				if !in.Measurement.Answered() {
					c.before = nil
				}
			case <-time.After(answerTime):
				c.before = nil
			}
			probe()
		})
	}
	in.Measurement = c.measure(ctx, conn)
	close(measured)
	if in.Measurement != nil && in.Measurement.Version != nil {
		v := in.Measurement.Version
		in.Runtime.Name, in.Runtime.Version = connection.Shorten(v.RuntimeName), connection.Shorten(v.RuntimeVersion)
		in.Runtime.APIVersion = connection.Shorten(v.RuntimeAPIVersion)
	}
	c.readProcesses(ctx, in)
	work.Wait()
	if c.scan != nil {
		in.Unexecutable = unexecutable(ctx, c.env.Root, in)
	}
	in.Summarize()
	if now, ok := host.OwnQuota(c.env.Root); ok && !conn.Simulated() {
		if now.Over = time.Since(began); now.Path == quota.Path {
			now.Periods, now.Throttled = now.Periods-quota.Periods, now.Throttled-quota.Throttled
		}
		in.OwnQuota = &now
	}
	in.LogStacks = c.readKilled(ctx, in.Journal)
	in.Now = c.env.Now()
	if c.request.Probes.Stacks {
		node.Dumps = slices.Concat(runtimeDumps, kubeletDump)
		set := dumps.Set{Root: c.env.Root, Node: in}
		set.Add(context.WithoutCancel(ctx), node.Dumps)
		set.Report(ctx)
	}
	logFacts(cli.Log(c.env, c.flags.Verbose), conn, in)
	return node, c.unusable(node, format)
}

// unusable adds a problem to a collection if the socket cannot be used. The error is one of usage.
func (c *collector) unusable(node *Collection, format string) (err error) {
	in := node.Facts
	switch {
	case in.Measurement == nil:
	case in.Measurement.Connect.State == crictl.ConnectDenied:
		node.Problems = []string{connection.Denied(in.Runtime.Endpoint)}
	case facts.NamedTTRPC(in):
		node.Problems, err = connection.Problems(cli.Usage(in.Runtime.Endpoint+
			" is containerd's ttrpc socket, for its shims", facts.CRISocketBeside(in.Runtime.Endpoint)), format)
	}
	return err
}

// measure asks the runtime; nil where there is none.
func (c *collector) measure(ctx context.Context, conn *connection.Connection) *plegbench.Measurement {
	switch {
	case conn.Client == nil:
		return nil
	case c.monitor != nil:
		return c.monitor.Poll(ctx, c.closely)
	}
	opts := c.request.Measure
	_, opts.RPCTimeout = c.flags.Budget()
	opts.Probe = crictl.Dialer(c.env.Sockets.Dial).Probe
	opts.Hints = func(ctx context.Context) []plegbench.Hint { return conn.Hints(ctx, c.scan) }
	opts.Streaming = conn.Kubelet != nil && conn.Kubelet.CRIListStreaming
	return plegbench.Measure(ctx, conn.Socket, conn.Client, opts)
}

// readProcesses reads the processes that matter a second time: their states are worth most at the moment at which calls
// hang, which may be after the start. The peer is the process that listens on the socket, where it is none of them.
func (c *collector) readProcesses(ctx context.Context, in *facts.Input) {
	if c.scan == nil {
		return
	}
	c.processes, _ = c.scan.Wait(ctx)
	ctx, cancel := context.WithTimeout(ctx, rereadTimeout)
	defer cancel()
	again, err := c.processes.Again(ctx)
	in.Processes, in.HostMissing = again, ""
	if err != nil {
		in.HostMissing = err.Error()
	}
	if in.Measurement == nil {
		return
	}
	in.Rivals = rivals(ctx, c.env.Root, in)
	in.PluginLocks = pluginLocks(ctx, c.env.Root, in)
	pid := in.Measurement.Connect.PeerPID
	isCRIO := func(p host.Process) bool { return p.PID == pid && p.Name == "crio" }
	if slices.ContainsFunc(in.Measurement.Probes, crictl.Call.Hung) && slices.ContainsFunc(again, isCRIO) {
		in.FileLocks, _ = host.LocksBefore(ctx, c.env.Root, pid) // else nobody is named
	}
	if pid <= 1 || slices.ContainsFunc(again, func(p host.Process) bool { return p.PID == pid }) {
		return
	}
	if p, err := c.processes.One(pid); err == nil {
		in.Peer = &p
	}
}

// pluginLocks returns the locks that a few CNI plugins may wait for.
func pluginLocks(ctx context.Context, root string, in *facts.Input) (all []host.FileLock) {
	old := 0
	for _, p := range in.Processes {
		if p.Role != host.RoleCNI || in.Now.Sub(p.Started) < facts.StuckWork || old == maxPlugins {
			continue
		}
		old++
		locks, _ := host.LocksBefore(ctx, root, p.PID) // else nobody is named
		for _, l := range locks {
			if !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}

// The logs of so many containers in a crash loop are read, of which a program that never ran leaves a line.
const (
	maxLooping  = 10
	maxLastWord = 1 << 10 // bytes
	lastWords   = 500 * time.Millisecond
)

// unexecutable returns the containers in a crash loop whose log has nothing but that the kernel cannot execute their
// program. The runtime starts them, and neither it nor the kubelet knows more; the configuration of an image may name
// an architecture that its programs are not made for.
func unexecutable(ctx context.Context, root string, in *facts.Input) []facts.Unexecutable {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	looping, logs := facts.CrashLoops(in.Measurement, in.Now), facts.DefaultPodLogs
	if in.Node != nil {
		logs = cmp.Or(in.Node.Settings.Value.PodLogsDir, logs)
	}
	found, _ := deadline.Run(ctx, "reading the logs of crash loops", // without them nothing is found
		func(context.Context) (all []facts.Unexecutable, _ error) {
			for _, c := range looping[:min(len(looping), maxLooping)] {
				text, err := readLog(filepath.Join(root, logs, facts.LogOf(c)))
				if words := facts.CannotExecute(text); err == nil && words != "" {
					all = append(all, facts.Unexecutable{Pod: facts.PodOf(c.Pod), Words: words, Since: c.Created()})
				}
			}
			return all, nil
		})
	return found
}

// readLog reads a log that is so short as a program leaves it that never ran.
func readLog(name string) (string, error) {
	f, err := safefile.Open(name, 0)
	if err != nil {
		return "", err
	}
	text, err := safefile.ReadAll(f, maxLastWord)
	return string(text), err
}

// rivals returns the kubelets that call the runtime of the node's kubelet as well.
func rivals(ctx context.Context, root string, in *facts.Input) []int {
	if in.Kubelet == nil {
		return nil
	}
	var others []int
	for _, p := range in.Processes {
		if p.Role == host.RoleKubelet && p.PID != in.Kubelet.PID && p.State != 'Z' {
			others = append(others, p.PID)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return crictl.Rivals(ctx, root, in.Kubelet.PID, others)
}

// probe runs the probes of the node, within their deadlines.
func (c *collector) probe(ctx context.Context, conn *connection.Connection) *facts.Node {
	selected := c.request.Probes
	if c.scan == nil || !selected.All && !selected.Cheap {
		return nil
	}
	in := probes.Input{
		Root: c.env.Root, Population: c.scan.Wait, Child: host.NewChild(c.env.Self), Credentials: selected.Credentials,
		APIServer: selected.APIServer, Between: c.between, Before: c.before,
	}
	if conn.Client != nil {
		in.RuntimeDriver, in.SandboxImage, in.Setup = conn.CgroupDriver, conn.SandboxImage, conn.Setup
	}
	if conn.Kubelet != nil {
		in.KubeletPID = conn.Kubelet.PID
	}
	return probes.Run(ctx, in, func(p probes.Probe) bool { return selected.All || p.Cheap })
}

// captureRuntime captures goroutine dumps of the runtime and of stuck shims: when a call has waited for half of its
// deadline, since the goroutine that serves it may end with it; else after the measurement.
func (c *collector) captureRuntime(
	ctx context.Context, conn *connection.Connection, measured <-chan struct{},
) []capture.Dump {
	if !c.request.Probes.Stacks {
		return nil
	}
	if conn.Simulated() {
		return dumps.None(host.RoleRuntime, "the runtime is simulated")
	}
	hangs := false
	select {
	case <-conn.Late:
		hangs = true
	case <-measured:
	}
	return c.capture(ctx, conn, dumps.Selection{Runtime: true, Shims: "stuck"}, hangs, host.RoleRuntime)
}

// captureKubelet captures a goroutine dump of the kubelet, if the node has one and it is wanted.
func (c *collector) captureKubelet(
	ctx context.Context, conn *connection.Connection, node *facts.Node,
) []capture.Dump {
	if !c.request.Probes.Stacks || node == nil || node.Settings.Value.PID == 0 ||
		!c.request.Probes.All && !node.Health.Value.SyncLoop.Failed() {
		return nil
	}
	return c.capture(ctx, conn, dumps.Selection{Kubelet: true}, false, host.RoleKubelet)
}

// capture captures the selected dumps, of which one has the role. A capture that hangs is abandoned.
func (c *collector) capture(
	ctx context.Context, conn *connection.Connection, which dumps.Selection, hangs bool, role host.Role,
) []capture.Dump {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	log := cli.Log(c.env, c.flags.Verbose)
	scan := c.scan
	found, err := deadline.RunGrace(ctx, "capturing goroutine dumps of the "+string(role), cli.Margin/2,
		func(ctx context.Context) ([]capture.Dump, error) {
			all, _ := scan.Wait(ctx)
			return dumps.Capture(ctx, capture.Input{
				Root: c.env.Root, Processes: all.Processes(), Credentials: c.request.Probes.Credentials,
				APIServer: c.request.Probes.APIServer,
				Say:       func(what string) { log.Debug("goroutine dump", "next", what) },
			}, conn, which, hangs)
		})
	if errors.Is(err, deadline.ErrAbandoned) {
		return dumps.None(role, "no dump within "+dumpTimeout.String())
	}
	return found // the other error is that no shim is stuck
}

// readLogs reads the node's logs of the last window, or returns why it could not. It ends within its own deadline.
func (c *collector) readLogs(ctx context.Context) (*journal.Report, string) {
	window := c.request.Limits.JournalWindow
	switch {
	case c.flags.Simulate != "":
		return nil, "the runtime is simulated"
	case window <= 0:
		return nil, ""
	}
	asking, _ := c.flags.Budget()
	timeout, now := min(asking/journalShare, journalTimeout), c.env.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	report, err := deadline.Run(ctx, "reading the logs", func(ctx context.Context) (*journal.Report, error) {
		return c.logs(ctx, c.env.Root, now.Add(-window))
	})
	if report != nil && report.GeneratedAt.IsZero() {
		report.GeneratedAt = now
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return report, fmt.Sprintf("it took longer than %v", timeout.Round(time.Millisecond))
	case err != nil:
		return report, connection.Shorten(err.Error())
	case report == nil:
		return nil, "there is none"
	}
	return report, ""
}

// logFacts writes the endpoint, the calls and the signatures to kdiag's own log.
func logFacts(log *slog.Logger, conn *connection.Connection, in *facts.Input) {
	log.Debug("endpoint", "found", conn.Endpoint, "passed over", conn.Tried)
	if k := conn.Kubelet; k != nil {
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

// A kill is the last one of systemd's watchdog, and what goroutines the daemon wrote into its log then.
type kill struct {
	at     time.Time
	stacks *checks.StacksReport
}

// readKilled returns the analysis of the goroutines that a daemon wrote into its log when systemd's watchdog ended it,
// with SIGABRT; nil where there is none. A Watch reads the goroutines of each kill once.
func (c *collector) readKilled(ctx context.Context, logs *journal.Report) *checks.StacksReport {
	killed := facts.CountOf(logs, signature.WatchdogTimeout)
	if killed == nil || killed.Last == nil || len(logs.Dumped) == 0 {
		return nil
	}
	if c.killed.stacks == nil || !c.killed.at.Equal(*killed.Last) {
		c.killed = kill{*killed.Last, dumps.FromLogs(ctx, logs)}
	}
	return c.killed.stacks
}

// DefaultDataDir is where the agent records.
const DefaultDataDir = "/var/lib/kdiag"

// Bounds of reading the records: an incident that began long ago shows in each of them.
const (
	recordedWithin = 6 * time.Hour
	recordedLimit  = time.Second // the disk may hang
)

// readRecords returns the time since which the agent of this node has recorded a problem that goes on; empty where
// there is no agent, or no problem.
func (c *collector) readRecords(ctx context.Context) string {
	if !c.request.Probes.Records || c.flags.Simulate != "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, recordedLimit)
	defer cancel()
	h, err := deadline.Run(ctx, "reading the agent's records", func(ctx context.Context) (*checks.History, error) {
		dir := filepath.Join(c.env.Root, DefaultDataDir)
		return recorder.History(ctx, dir, c.env.Now().Add(-recordedWithin), time.Time{})
	})
	if err != nil {
		return ""
	}
	return recorder.Since(h, func(t time.Time) string { return t.UTC().Format(time.TimeOnly) })
}
