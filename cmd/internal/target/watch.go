package target

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kdiag/kdiag/checks/capture"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

// A Watch asks one runtime and its node again and again. It never repeats a call or a read that hangs. It is not for
// several
// goroutines, but for Forget and Dumps.
type Watch struct {
	env  cli.Env
	f    *cli.Flags
	opts WatchOptions

	guard     deadline.Guard
	session   session
	mu        sync.Mutex // held to change the target, and by Dumps to read it
	target    *Target    // nil until a runtime is found
	monitor   *plegbench.Monitor
	connected atomic.Bool // at the last look
	closely   bool        // the look that is under way
	node      *facts.Node // at the last look
	walked    time.Time   // when the probes that walk were last made, with the runtime well; zero to make them now
	whole     bool        // the expensive ones too
	hints     func(context.Context) []plegbench.Hint
}

// WatchOptions are how a Watch asks.
type WatchOptions struct {
	Interval, Sweep time.Duration     // of looks, and in which each object is asked about once
	Walk            time.Duration     // how often the probes that walk are made; closer looks make them each Interval
	Question        Question          // Looks.All is added for closer looks
	Done            func(crictl.Call) // as in plegbench.MonitorOptions
}

// NewWatch returns a Watch, which has asked nothing yet. The logs are followed until ctx ends. Where looks follow one
// another within a second, counters are read half of their interval apart.
func NewWatch(ctx context.Context, env cli.Env, f *cli.Flags, opts WatchOptions) *Watch {
	w := &Watch{env: f.Host(env), f: f, opts: opts}
	w.session = session{open: w.open, measure: w.measure, between: min(betweenLooks, opts.Interval/2)}
	if f.Simulate == "" {
		logs := journal.NewFollower(ctx, w.env.Root, opts.Question.Limits.JournalWindow)
		w.session.logs = func(context.Context, string, time.Time) (*journal.Report, error) { return logs.Report() }
	}
	return w
}

// Look asks once; a closer look makes the expensive probes too. While the runtime answers, the findings of the probes
// that walk (through all threads, control groups, mounts) are taken again until they are due. What Look returns is that
// of Ask, for a document.
func (w *Watch) Look(ctx context.Context, closely bool) (*facts.Input, []string, error) {
	q := w.opts.Question
	q.Looks.Cheap, q.Looks.All = true, closely
	every := w.opts.Walk
	if closely {
		every = w.opts.Interval
	} else {
		w.whole = false // what this look does not make, the next closer one cannot take from it
	}
	w.session.before = nil
	if (w.whole || !closely) && time.Since(w.walked) < every-w.opts.Interval/2 {
		w.session.before = w.node
	}
	w.closely = closely
	in, err := w.session.gather(deadline.WithGuard(ctx, &w.guard), w.env, w.f, q)
	switch w.node = in.Node; {
	case !in.Measurement.Answered():
		w.walked = time.Time{} // the end of it is to be seen at once
	case w.session.walked:
		w.walked, w.whole = in.Now, closely
	}
	w.connected.Store(err == nil && in.Measurement.Connect.State == crictl.ConnectOK)
	return asked(in, err, "")
}

// Close abandons what is under way.
func (w *Watch) Close() {
	if w.target != nil {
		w.monitor.Close()
		w.target.Close()
	}
}

// Forget has the next look search the runtime and the kubelet anew. It may be called by another goroutine.
func (w *Watch) Forget() { w.connected.Store(false) }

// Dumps captures goroutine dumps of the runtime and of shims that are stuck. The runtime is not asked.
func (w *Watch) Dumps(ctx context.Context) []capture.Dump {
	t := w.found()
	if t == nil || t.Simulated() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	in := capture.Input{Credentials: w.opts.Question.Looks.Credentials}
	d := newDumper(w.env, t, scanProcesses(ctx, w.env.Root, host.Population{}), in)
	dumps, _ := d.take(ctx, Dumps{Runtime: true, Shims: "stuck"}) // that none is stuck is no problem
	return dumps
}

// found returns a copy of the runtime that was found last, without its connection, as one of which a call hangs: what
// stands still in its goroutines is worth a second dump.
func (w *Watch) found() *Target {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.target == nil {
		return nil
	}
	return &Target{
		Endpoint: w.target.Endpoint, Kubelet: w.target.Kubelet, socket: w.target.socket, scenario: w.target.scenario,
		hangs: true,
	}
}

// open returns the runtime that was found before, unless its socket or the kubelet is gone. Where there is another one
// now, that is asked from now on.
func (w *Watch) open(ctx context.Context) (*Target, func(), error) {
	keep := func() {}
	old := w.target
	if old != nil && (old.Simulated() || w.connected.Load() && w.kubeletRuns()) {
		return old, keep, nil
	}
	t, err := Open(ctx, w.env, w.f)
	switch {
	case err != nil && old != nil: // of a socket that is gone nothing else may be left
		return old, keep, nil
	case err != nil:
		return nil, nil, err
	case old != nil && old.Endpoint.URL == t.Endpoint.URL: // what hangs there is not asked again
		w.mu.Lock()
		old.Kubelet, old.NotTaken = t.Kubelet, t.NotTaken
		w.mu.Unlock()
		t.Close()
		return old, keep, nil
	}
	w.Close()
	_, rpc := w.f.Budget()
	w.mu.Lock()
	w.target = t
	w.mu.Unlock()
	w.monitor = plegbench.NewMonitor(t.socket, t.Client, plegbench.MonitorOptions{
		RPCTimeout: rpc, Interval: w.opts.Interval, Sweep: w.opts.Sweep, Done: w.opts.Done,
		Probe:     crictl.Dialer(w.env.Sockets.Dial).Probe,
		Streaming: t.Kubelet != nil && t.Kubelet.CRIListStreaming,
		Hints:     func(ctx context.Context) []plegbench.Hint { return w.hints(ctx) },
	})
	return t, keep, nil
}

// kubeletRuns reports whether the kubelet that was found still runs.
func (w *Watch) kubeletRuns() bool {
	k := w.target.Kubelet
	return k != nil && crictl.InRoot(w.env.Root, filepath.Join("/proc", strconv.Itoa(k.PID)), func(string) error {
		return nil
	}) == nil
}

// measure has the monitor look.
func (w *Watch) measure(ctx context.Context, _ *Target, opts plegbench.Options) *plegbench.Measurement {
	w.hints = opts.Hints
	return w.monitor.Look(ctx, w.closely)
}
