package diagnosis

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/capture"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/incident"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/dumps"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/screen"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

// A Watch collects from one runtime and its node again and again. It never repeats a call or a read that hangs. Only
// Rediscover and CaptureStacks may be called by another goroutine than the others.
type Watch struct {
	opts      WatchOptions
	guard     deadline.Guard
	collector collector

	mu        sync.Mutex // held to change conn, and by CaptureStacks to read it
	conn      *connection.Connection
	connected atomic.Bool // whether the last observation could connect
	walked    time.Time   // when the walks were last made with a healthy runtime; zero to repeat them now
	whole     bool        // whether they included the expensive ones
	last      *Collection // nil before the first observation
}

// WatchOptions configure a Watch.
type WatchOptions struct {
	Interval, Sweep time.Duration     // of observations; in which each object is asked about once
	Walk            time.Duration     // how often the walks are repeated; closer observations repeat them each Interval
	Request         Request           // Probes.All is added for closer observations
	Done            func(crictl.Call) // as in plegbench.MonitorOptions
}

// NewWatch returns a Watch. The logs are followed until ctx ends. Where observations follow one another within a
// second, counters are read half of their interval apart.
func NewWatch(ctx context.Context, env cli.Env, f *cli.Flags, opts WatchOptions) *Watch {
	w := &Watch{opts: opts, collector: collector{
		env: f.Host(env), flags: f, request: opts.Request, between: min(countersApart, opts.Interval/2),
	}}
	if f.Simulate == "" {
		logs := journal.NewFollower(ctx, w.collector.env.Root, opts.Request.Limits.JournalWindow)
		w.collector.logs = func(context.Context, string, time.Time) (*journal.Report, error) { return logs.Report() }
	}
	return w
}

// Observe collects once; a closer observation makes the expensive probes too. While the runtime answers, the findings
// of the probes that walk through all threads, control groups or mounts are reused until they are due.
func (w *Watch) Observe(ctx context.Context, closely bool) (*Collection, error) {
	c := &w.collector
	ctx, cancel := c.flags.Within(deadline.WithGuard(ctx, &w.guard))
	defer cancel()
	every := w.opts.Walk
	if closely {
		every = w.opts.Interval
	} else {
		w.whole = false // the next closer observation cannot reuse what this one leaves out
	}
	c.before = nil
	if (w.whole || !closely) && w.last != nil && time.Since(w.walked) < every-w.opts.Interval/2 {
		c.before = w.last.Facts.Node
	}
	c.request.Probes.Cheap, c.request.Probes.All, c.closely = true, closely, closely
	opened := w.open(ctx)
	node, err := c.collect(ctx, w.conn, opened, string(render.JSON))
	if err != nil {
		return nil, err
	}
	w.last = node
	switch m := node.Facts.Measurement; {
	case !m.Answered():
		w.walked = time.Time{} // its end is to be seen at once
	case c.before == nil:
		w.walked, w.whole = node.Facts.Now, closely
	}
	m := node.Facts.Measurement
	w.connected.Store(m != nil && m.Connect.State == crictl.ConnectOK)
	return node, nil
}

// Close abandons the calls under way.
func (w *Watch) Close() {
	if w.conn != nil {
		w.collector.monitor.Close()
		w.conn.Close()
	}
}

// Rediscover makes the next observation search for the runtime and the kubelet again.
func (w *Watch) Rediscover() { w.connected.Store(false) }

// CaptureStacks captures goroutine dumps of the runtime and of stuck shims, as those of a runtime of which a call
// hangs. The runtime is not asked.
func (w *Watch) CaptureStacks(ctx context.Context) []capture.Dump {
	conn := w.found()
	if conn == nil || conn.Simulated() {
		return nil
	}
	env := w.collector.env
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	all, _ := connection.StartScan(ctx, env.Root, host.Population{}).Wait(ctx)
	captured, _ := dumps.Capture(ctx, capture.Input{
		Root: env.Root, Processes: all.Processes(), Credentials: w.opts.Request.Probes.Credentials,
	}, conn, dumps.Selection{Runtime: true, Shims: "stuck"}, true) // the error is that no shim is stuck
	return captured
}

// found returns a copy of the connection without its client; nil before a runtime is found.
func (w *Watch) found() *connection.Connection {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		return nil
	}
	return &connection.Connection{Endpoint: w.conn.Endpoint, Kubelet: w.conn.Kubelet, Socket: w.conn.Socket}
}

// open keeps the connection, unless its socket or the kubelet is gone. Where there is another runtime now, that is
// connected to. The error is set where there is no connection.
func (w *Watch) open(ctx context.Context) error {
	old := w.conn
	if old != nil && (old.Simulated() || w.connected.Load() && w.kubeletRuns()) {
		return nil
	}
	conn, err := connection.Open(ctx, w.collector.env, w.collector.flags)
	switch {
	case err != nil && old != nil: // of a socket that is gone nothing else may be left
		return nil
	case err != nil:
		return err
	case old != nil && old.Endpoint.URL == conn.Endpoint.URL: // its calls that hang are not repeated
		w.mu.Lock()
		old.Kubelet, old.NotTaken = conn.Kubelet, conn.NotTaken
		w.mu.Unlock()
		conn.Close()
		return nil
	}
	w.Close()
	_, rpc := w.collector.flags.Budget()
	w.mu.Lock()
	w.conn = conn
	w.mu.Unlock()
	w.collector.monitor = plegbench.NewMonitor(conn.Socket, conn.Client, plegbench.MonitorOptions{
		RPCTimeout: rpc, Interval: w.opts.Interval, Sweep: w.opts.Sweep, Done: w.opts.Done,
		Probe:     crictl.Dialer(w.collector.env.Sockets.Dial).Probe,
		Streaming: conn.Kubelet != nil && conn.Kubelet.CRIListStreaming,
		Hints:     func(ctx context.Context) []plegbench.Hint { return conn.Hints(ctx, w.collector.scan) },
	})
	return nil
}

// kubeletRuns reports whether the kubelet that was found still runs.
func (w *Watch) kubeletRuns() bool {
	k := w.conn.Kubelet
	return k != nil && crictl.InRoot(w.collector.env.Root, filepath.Join("/proc", strconv.Itoa(k.PID)),
		func(string) error { return nil }) == nil
}

// How often --watch reports, and in which time it asks about each object once.
const (
	watchInterval = 5 * time.Second
	watchSweep    = time.Minute
)

// A repetition is one run with --watch.
type repetition struct {
	env     cli.Env
	flags   *cli.Flags
	command string
	show    Show
	watch   *Watch
	tracker *incident.Tracker

	mu      sync.Mutex
	last    *checks.Report
	changes []string // the newest last
}

// reportAgain is Report with --watch: it reports again and again, until ctx ends or, with --until-healthy, until
// nothing is wrong any more. In a terminal the verdict stays on top, with the changes below. Elsewhere the first report
// is printed, and then each change in a line; documents are printed whole, one for each change.
func reportAgain(ctx context.Context, env cli.Env, f *cli.Flags, r Request, show Show) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	a := &repetition{
		env: f.Host(env), flags: f, command: r.Command, show: show, tracker: incident.New(),
		watch: NewWatch(ctx, env, f, WatchOptions{Interval: watchInterval, Sweep: watchSweep, Request: r}),
	}
	defer a.watch.Close()
	var err error
	if view, problem := screen.Open(env); problem == nil && f.Output == string(render.Text) {
		err = view.Show(ctx, leave, a.draw, func(ctx context.Context) error {
			return a.run(ctx, func(bool) error { return nil })
		})
		if err == nil && a.last != nil {
			err = a.print(false)
		}
	} else {
		err = a.run(ctx, a.print)
	}
	if err != nil || a.last == nil {
		return cmp.Or(err, error(&cli.ExitError{Code: cli.ExitUnknown}))
	}
	return document.Exit(context.WithoutCancel(ctx), a.last.Status, f.FailOn)
}

// run reports until ctx ends or nothing is wrong. changed is called after the first report and after each that differs.
func (a *repetition) run(ctx context.Context, changed func(again bool) error) error {
	for again := false; ; again = true {
		began := time.Now()
		node, err := a.watch.Observe(ctx, true)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		r := judge.NewReport(document.Header(a.env, a.command, ""), node.Facts)
		document.Complete(r, node.Problems)
		news := a.take(r, node.Facts)
		if news || !again {
			if err := changed(again); err != nil {
				return err
			}
		}
		if a.flags.UntilHealthy && r.Status == checks.Healthy && len(a.tracker.Active()) == 0 {
			return nil
		}
		select {
		case <-time.After(watchInterval - time.Since(began)):
		case <-ctx.Done():
			return nil
		}
	}
}

// take updates the state by a report, and reports whether anything changed.
func (a *repetition) take(r *checks.Report, in *facts.Input) bool {
	changed := a.tracker.Update(r, incident.Began(in))
	a.mu.Lock()
	defer a.mu.Unlock()
	differs := len(changed) > 0 || a.last == nil || a.last.Status != r.Status
	for _, t := range changed {
		what := map[string]string{
			checks.CauseOnset: "begins", checks.CauseConfirmed: "confirmed", checks.CauseClear: "is gone",
		}[t.To]
		if t.From == t.To {
			what = "is critical"
		}
		a.changes = append(a.changes, fmt.Sprintf("%s %s %s: %s", t.At.Format(time.TimeOnly), t.Cause, what, t.Summary))
	}
	if a.last != nil && a.last.Status != r.Status {
		a.changes = append(a.changes, fmt.Sprintf("%s %s", r.GeneratedAt.Format(time.TimeOnly),
			strings.ToUpper(string(r.Status))))
	}
	a.changes = a.changes[max(0, len(a.changes)-mostChanges):]
	a.last = r
	return differs
}

// The number of changes kept for the screen, and of those shown above a longer report.
const (
	mostChanges  = 100
	leastChanges = 2
)

// print prints the report, or, in text and not for the first time, the changes.
func (a *repetition) print(again bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !again || a.flags.Output != string(render.Text) {
		a.changes = nil
		return a.show(a.env.Out, a.last, document.Options(a.env, a.flags))
	}
	for _, line := range a.changes {
		if _, err := fmt.Fprintln(a.env.Out, render.Printable(line)); err != nil {
			return err
		}
	}
	a.changes = nil
	return nil
}

// draw draws the verdict, and the changes below it, the newest last.
func (a *repetition) draw(width, height int) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		return []string{"looking..."}
	}
	how := document.Options(a.env, a.flags)
	how.Width, how.NoWrap = min(width-1, document.Widest), false
	how.Rows = max(height-2-min(len(a.changes), leastChanges), 1)
	var text bytes.Buffer
	if err := a.show(&text, a.last, how); err != nil {
		return []string{err.Error()}
	}
	last := "looked at " + a.last.GeneratedAt.Format(time.TimeOnly) + " UTC, again each " + watchInterval.String() +
		"; q ends"
	return render.Above(text.String(), a.changes, last, width, height)
}
