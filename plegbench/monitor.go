package plegbench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A Monitor asks a runtime again and again, for a service that runs for months beside it. A call that hangs is not made
// again while it hangs: a Monitor has at most one call of each RPC and object under way, and at most maxOutstanding
// status calls. It is not for several goroutines.
type Monitor struct {
	inFlight
	endpoint string
	client   *crictl.Client
	opts     MonitorOptions
	measure  Options // of a round

	known   map[string]*known // by id
	listed  time.Time         // when both lists came last
	polled  time.Time         // when the last round began
	credit  time.Duration     // the time since an object was asked about in turn, times the objects
	connect crictl.Connect
	socket  uint64 // the file that connect is about
	// searching is set while Hints is under way
	searching atomic.Bool
}

// MonitorOptions are how a Monitor asks.
type MonitorOptions struct {
	RPCTimeout time.Duration // a call that takes longer has hung, as far as a Measurement is concerned
	Interval   time.Duration // of rounds
	Sweep      time.Duration // in which each object is asked about once
	Streaming  bool          // as in Options
	Probe      func(ctx context.Context, endpoint string) crictl.Connect
	Hints      func(context.Context) []Hint
	// Done is called with each call that ended, hung ones too when they are answered at last, and with each that was
	// found to hang, once. It is called on the goroutine of Poll.
	Done func(crictl.Call)
}

// A known is an object that a Monitor remembers between rounds. Its strings are copies: strings of a list keep
// pieces of it alive.
type known struct {
	id, kind, pod string
	state         string      // as listed last; empty if it was never listed
	call          crictl.Call // the last status call that ended; zero before
	due           bool        // to be asked about now, whenever that was last
}

// NewMonitor returns a Monitor of the runtime behind endpoint. Its calls have no deadline, even if those of client have
// one.
func NewMonitor(endpoint string, client *crictl.Client, opts MonitorOptions) *Monitor {
	opts.Sweep = max(opts.Sweep, opts.Interval, 1)
	m := &Monitor{
		endpoint: endpoint, client: client.WithTimeout(noDeadline), opts: opts, known: map[string]*known{},
		polled: time.Now().Add(-opts.Interval),
	}
	m.measure = Options{RPCTimeout: opts.RPCTimeout, Streaming: opts.Streaming, Probe: opts.Probe}.withDefaults()
	m.opts.Probe, m.measure.Probe, m.measure.Hints = m.measure.Probe, m.probe, m.hints
	m.timeout, m.period = m.measure.RPCTimeout, opts.Sweep-opts.Interval/2
	m.calls, m.images = map[callKey]*inFlightCall{}, map[string]crictl.Call{}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Poll makes one round of calls and returns a Measurement as Measure would, of these and of remembered calls. It ends
// when every call was answered or has taken RPCTimeout; as in Measure, lists may take twice that while Version and
// Status answer.
//
// A round calls Version, Status and both lists. It then inspects the objects that are new or have changed since the
// last round, and as many others, the longest unasked first, as are needed to inspect each once in Sweep. The first
// round, a closer one, and one in which a call begins to hang inspect all running objects and the newest exited, or
// hints, for sweepBudget at most; a closer round leaves out objects that were inspected within Interval. While Version
// hangs, a round calls only Status and the lists beside it.
func (m *Monitor) Poll(ctx context.Context, closely bool) *Measurement {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	now := &Measurement{Started: time.Now()}
	r := &measurer{opts: m.measure, client: m.client, endpoint: m.endpoint, out: now, monitor: m}
	m.settle(now.Started)
	if first, ok := r.probe(ctx); ok {
		r.took(first)
		now.Probes = slices.DeleteFunc(now.Probes, func(c crictl.Call) bool { return c.Method == "" })
		m.inspect(ctx, r, closely)
	}
	r.cut = r.cut || ctx.Err() != nil
	m.settle(now.Started)
	m.polled = now.Started
	return r.end(ctx)
}

// Close abandons the calls that are under way.
func (m *Monitor) Close() { m.cancel() }

// hints searches for hints, unless an earlier search still hangs.
func (m *Monitor) hints(ctx context.Context) []Hint {
	if m.opts.Hints == nil || !m.searching.CompareAndSwap(false, true) {
		return nil
	}
	defer m.searching.Store(false)
	return m.opts.Hints(ctx)
}

// probe probes the socket, unless it was silent and its daemon still does not answer: each probe of a stopped daemon
// stays in its listen queue. When another process listens, the calls to the old one are given up.
func (m *Monitor) probe(ctx context.Context, endpoint string) crictl.Connect {
	socket := crictl.SocketID(ctx, endpoint)
	m.mu.Lock()
	stopped := m.connect.State == crictl.ConnectSilent && m.hangs(versionCall)
	m.mu.Unlock()
	if !stopped || socket != m.socket {
		m.connect, m.socket = m.opts.Probe(ctx, endpoint), socket
		m.client.Follow(m.connect.PeerPID)
	}
	return m.connect
}

// inspect inspects the objects that are due, and reports the last known inspection of each object.
func (m *Monitor) inspect(ctx context.Context, r *measurer, closely bool) {
	r.gone = r.out.Probes[0].Hung() || !slices.ContainsFunc(r.out.Probes[:containerProbe+1], spoke)
	all := targets(r.out.Sandboxes, r.out.Containers, r.hints(ctx), newestExited)
	_, _, newest := m.underWay()
	asked := r.out.Started.Add(-m.opts.Interval) // objects that were inspected since then are left out
	if newest.Equal(r.out.Started) {
		closely, asked = true, r.out.Started
	}
	closely = closely || m.listed.IsZero()
	m.learn(r.out, all)
	m.credit += time.Duration(len(all)) * min(r.out.Started.Sub(m.polled), m.opts.Sweep)
	share := m.credit / m.opts.Sweep
	m.credit -= share * m.opts.Sweep
	s, hung := m.sweep(ctx, r, m.due(all, closely, asked, int(share)))
	if hung && !closely && s.stopped == stopAll {
		s, _ = m.sweep(ctx, r, m.due(all, true, r.out.Started, 0)) // is it this one, or all?
	}
	found, total := m.inspections(r.out.Started, all)
	rest := fmt.Sprintf("each is asked about once in %v", m.opts.Sweep)
	r.out.Sweep = Sweep{Total: total, Inspections: found, Reach: s.reach(total, found, rest)}
}

// sweep asks about targets in their order, and reports whether one more hangs.
func (m *Monitor) sweep(ctx context.Context, r *measurer, due []target) (s *sweeper, hung bool) {
	s = newSweeper(ctx, r, due, order(due, func(int, func(i, j int)) {}))
	s.checkAt = sweepBudget // the next round goes on where this one ends, so it need not decide
	out, _, _ := m.underWay()
	s.givenUp = len(out)
	s.sweep()
	m.settle(r.out.Started)
	return s, s.givenUp > len(out)
}

// learn takes the lists of a round. New and changed objects are due; objects that are gone are forgotten. In the first
// round the running objects are due.
//
// Of the pods that have changed since the last lists, ChangedPods has as many as one relist would find if they changed
// one after the other: scaled to RelistPeriod and rounded up.
func (m *Monitor) learn(now *Measurement, all []target) {
	has, first := complete(now.Sandboxes, now.Containers), m.listed.IsZero()
	there, changed := make(map[string]bool, len(all)), map[string]bool{}
	for _, t := range all {
		in := t.inspection()
		there[in.ID] = true
		k := m.known[in.ID]
		if k == nil {
			k = &known{id: strings.Clone(in.ID), kind: in.Kind, pod: strings.Clone(in.Pod.UID)}
			k.due = !first || t.turn == must || t.hint != nil
			m.known[k.id] = k
		}
		if in.State != k.state && t.hint == nil {
			changed[k.pod] = true
			k.state, k.due = in.State, k.due || !first
		}
	}
	for id, k := range m.known {
		if !there[id] && has[k.kind] {
			delete(m.known, id)
			changed[k.pod] = true
		}
	}
	if !has[KindPodSandbox] || !has[KindContainer] {
		return
	}
	if since := max(now.Started.Sub(m.listed), RelistPeriod); !first && len(changed) > 0 {
		n := (time.Duration(len(changed))*RelistPeriod + since - 1) / since
		now.ChangedPods = slices.Sorted(maps.Keys(changed))[:n]
	}
	m.listed = now.Started
}

// due returns the objects to inspect: first those that are due, then, in a closer round, the running ones that were not
// inspected since asked, then share others. Within each group the longest unasked come first, in random order at first.
func (m *Monitor) due(all []target, closely bool, asked time.Time, share int) []target {
	type candidate struct {
		target
		*known
		rank int
	}
	some := make([]candidate, 0, len(all))
	out, _, _ := m.underWay()
	n := share
	for _, t := range all {
		c := candidate{target: t, known: m.known[t.inspection().ID], rank: 2}
		c.turn = later // all within the budget
		if c.due {
			c.rank = 0
		} else if closely && (t.turn == must || t.hint != nil) && !c.call.Start.After(asked) {
			c.rank = 1
		}
		if out[c.id] != nil {
			continue
		}
		if some = append(some, c); c.rank < 2 {
			n++
		}
	}
	m.measure.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	slices.SortStableFunc(some, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.call.Start.Compare(b.call.Start))
	})
	var due []target
	for _, c := range some[:min(n, len(some))] {
		due = append(due, c.target)
	}
	return due
}

// inspections returns the last inspection of each object, and how many objects there are. Answers from before the
// oldest call that hangs are left out: they show nothing about now.
func (m *Monitor) inspections(now time.Time, all []target) (found []Inspection, total int) {
	out, since, _ := m.underWay()
	found = make([]Inspection, 0, len(all))
	for _, t := range all {
		in, k := t.inspection(), m.known[t.inspection().ID]
		old := k.call.Start.Before(now) && (k.due || k.call.Start.Before(since))
		if c := out[in.ID]; c != nil {
			delete(out, in.ID)
			c.about, in.Call = in, m.elapsed(c)
		} else if in.Call = k.call; k.call.Method == "" || old {
			continue
		}
		found = append(found, in)
	}
	total = len(all)
	for _, c := range out { // not listed now
		if m.known[c.about.ID] != nil {
			c.about.Call = m.elapsed(c)
			found = append(found, c.about)
			total++
		}
	}
	return found, total
}

// settle takes the calls that have ended or were found to hang, and reports them. Calls that are made from now on
// belong to the round that began then.
func (m *Monitor) settle(round time.Time) {
	for _, c := range m.news(round) {
		if k := m.known[c.Object]; k != nil && !c.Hung() {
			k.call, k.due = c, broken(c) || c.Elapsed >= m.timeout
			k.call.Object = k.id
		}
		if m.opts.Done != nil {
			m.opts.Done(c)
		}
	}
}
