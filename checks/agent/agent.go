// Package agent is kdiag as a service: it looks at the node again and again, keeps what it saw, takes evidence when
// something begins, and publishes the state of the node.
package agent

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/incident"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/checks/units"
)

// How closely the agent looks at a node where something begins.
const (
	closeInterval = 5 * time.Second
	closeFor      = 2 * time.Minute
	closerEvery   = 10 * time.Minute // for one reason
)

// captureEvery is how often at most an archive is made of one cause.
const captureEvery = time.Hour

// publishedAgain is how far back transitions are published again after a restart: those that the API server has, it
// does not take twice.
const publishedAgain = time.Hour

// A Look is one look at the node.
type Look struct {
	Facts  *facts.Input
	Report *checks.Report
}

// Config is what an agent works with.
type Config struct {
	Interval time.Duration // of looks
	// Look looks at the node, within ctx, whatever hangs. The error is that kdiag could not look at all.
	Look func(ctx context.Context, closely bool) (*Look, error)
	// Capture writes an archive of the evidence for a cause, and returns what became of it.
	Capture func(ctx context.Context, of *Look, cause string) checks.TakenCapture
	Metrics *Metrics
	// Recorder and Publisher may be nil.
	Recorder  *recorder.Recorder
	Publisher *Publisher
	Log       *slog.Logger
	// Looked is called after each look with its report.
	Looked func(*checks.Report)
}

// An Agent looks at one node until it is told to end.
type Agent struct {
	cfg      Config
	tracker  *incident.Tracker
	captured map[string]time.Time // by cause, when the last archive was begun
	busy     chan struct{}        // holds a token while an archive is made
	closely  time.Time            // until then
	closer   map[string]time.Time // by cause, when closer looks were begun for it; by the empty one, for slow calls
	slow     bool                 // something was at the last look
	past     []checks.Transition  // that may not have been published before a restart
	work     sync.WaitGroup       // the look and the capture that are under way

	mu     sync.Mutex
	last   *checks.Report
	looked time.Time
}

// New returns an agent that knows what its recorder has of the time before; nil is nothing.
func New(cfg Config, past *checks.History) *Agent {
	a := &Agent{
		cfg: cfg, tracker: incident.New(), busy: make(chan struct{}, 1),
		captured: map[string]time.Time{}, closer: map[string]time.Time{},
	}
	if past == nil {
		return a
	}
	a.tracker.Resume(past.Transitions)
	for _, t := range past.Transitions {
		if time.Since(t.Noticed) < publishedAgain {
			a.past = append(a.past, t)
		}
	}
	for _, c := range past.Captures {
		if c.Error == "" {
			a.captured[c.Cause] = c.At
		}
	}
	return a
}

// Run looks until ctx ends. It returns at once then, whatever hangs.
func (a *Agent) Run(ctx context.Context) {
	a.looked = time.Now()
	for {
		began := time.Now()
		done := make(chan struct{})
		a.work.Go(func() {
			defer close(done)
			a.look(ctx, began.Before(a.closely))
		})
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
		interval := a.cfg.Interval
		if time.Now().Before(a.closely) {
			interval = min(interval, closeInterval)
		}
		select {
		case <-time.After(interval - time.Since(began)):
		case <-ctx.Done():
			return
		}
	}
}

// Last returns the report of the last look; nil before the first.
func (a *Agent) Last() *checks.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// Alive reports whether the loop runs: the last look is not longer ago than recorder.Late allows.
func (a *Agent) Alive() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.looked) < recorder.Late(a.cfg.Interval)
}

func (a *Agent) setLooked(r *checks.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.looked = r, time.Now()
}

// look looks once, and hands on what it found.
func (a *Agent) look(ctx context.Context, closely bool) {
	began := time.Now()
	l, err := a.cfg.Look(ctx, closely)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		a.cfg.Log.Error("could not look", "error", err)
		l = &Look{Facts: &facts.Input{}, Report: &checks.Report{Header: checks.Header{
			APIVersion: checks.APIVersion, Kind: checks.KindReport, GeneratedAt: began, Status: checks.Unknown,
			Problems: []string{err.Error()},
		}}}
	}
	since := map[string]time.Time{}
	for _, t := range a.tracker.Active() {
		since[t.Cause] = t.At
	}
	changed := a.tracker.Look(l.Report, incident.Began(l.Facts))
	a.cfg.Metrics.Look(l.Report, l.Facts, time.Since(began))
	for _, t := range changed {
		level, text := slog.LevelWarn, t.Summary
		if t.To == checks.CauseClear {
			level, text = slog.LevelInfo, t.Cause+" is gone after "+units.Duration(t.At.Sub(since[t.Cause]))
		}
		a.cfg.Log.Log(ctx, level, text, "cause", t.Cause, "from", t.From, "to", t.To, "at", t.At)
	}
	if r := a.cfg.Recorder; r != nil {
		r.Append(began, recorder.KindSample, sample(l))
		for _, t := range changed {
			r.Append(began, recorder.KindTransition, t)
		}
	}
	if a.cfg.Publisher != nil {
		a.cfg.Publisher.Publish(l.Report, append(a.past, changed...))
		a.past = nil
	}
	slow := isSlow(l.Facts)
	if slow && !a.slow {
		a.lookCloser("")
	}
	a.slow = slow
	for _, t := range changed {
		if t.From == checks.CauseClear {
			a.lookCloser(t.Cause)
		}
	}
	a.capture(ctx, l)
	a.setLooked(l.Report)
	if a.cfg.Looked != nil {
		a.cfg.Looked(l.Report)
	}
}

// lookCloser begins closer looks, unless they were begun for the same reason not long ago: it comes and goes.
func (a *Agent) lookCloser(why string) {
	if now := time.Now(); now.Sub(a.closer[why]) > closerEvery {
		a.closer[why], a.closely = now, now.Add(closeFor)
	}
}

// isSlow reports whether a call had no answer, or relists take long, although that need not be a cause yet.
func isSlow(in *facts.Input) bool {
	m, s := in.Measurement, in.Summary
	if m == nil || s == nil {
		return false
	}
	list := s.List != nil && (s.List.MaxSeconds == nil || *s.List.MaxSeconds > in.Limits.SlowList.Seconds())
	return list || s.Sweep != nil && s.Sweep.Hung > 0
}

// capture has an archive made of the first critical cause that is confirmed, is no consequence of another and has none
// yet, in the background, before anything restarts. One is made at a time. Of a cause whose archive was being made when
// an agent was killed, the next agent makes one.
func (a *Agent) capture(ctx context.Context, l *Look) {
	all := a.tracker.Active()
	i := slices.IndexFunc(all, func(t checks.Transition) bool {
		return t.To == checks.CauseConfirmed && t.Severity == checks.Critical && t.CausedBy == "" &&
			t.Noticed.Sub(a.captured[t.Cause]) >= captureEvery &&
			slices.ContainsFunc(l.Report.Causes, func(c checks.Cause) bool { return c.Code == t.Cause })
	})
	if i < 0 || a.cfg.Capture == nil {
		return
	}
	select {
	case a.busy <- struct{}{}:
	default:
		return
	}
	cause := all[i].Cause
	a.captured[cause] = time.Now()
	a.work.Go(func() {
		defer func() { <-a.busy }()
		taken := a.cfg.Capture(ctx, l, cause)
		if taken.Error == "" {
			a.cfg.Metrics.Captured(cause)
		}
		if r := a.cfg.Recorder; r != nil {
			r.Append(taken.At, recorder.KindCapture, taken)
		}
		a.cfg.Log.Info("evidence", "cause", cause, "path", taken.Path, "bytes", taken.Bytes, "problem", taken.Error)
	})
}

// sample returns what is kept of a look.
func sample(l *Look) checks.LookSample {
	s := checks.LookSample{At: l.Report.GeneratedAt, Status: l.Report.Status}
	for _, c := range l.Report.Causes {
		s.Causes = append(s.Causes, checks.LookCause{
			Code: c.Code, Severity: c.Severity, Confidence: c.Confidence, Subject: c.Subject.Label(),
		})
	}
	m, sum := l.Facts.Measurement, l.Facts.Summary
	if m == nil || sum == nil {
		return s
	}
	if n := len(m.Samples); n > 0 && m.Samples[n-1].OK() {
		s.ListSeconds = new(m.Samples[n-1].Elapsed().Seconds())
	}
	s.ProjectedSeconds, s.ColdSeconds, s.ListBytes = sum.ProjectedSeconds, sum.ColdSeconds, sum.ResponseBytes
	if sum.Sweep != nil {
		s.SlowestSeconds = sum.Sweep.SlowestSeconds
	}
	if c := sum.Containers; c != nil {
		s.Containers, s.Exited = new(c.Created+c.Running+c.Exited+c.Unknown), new(c.Exited)
	}
	if c := sum.Sandboxes; c != nil {
		s.Sandboxes = new(c.Ready + c.NotReady)
	}
	for _, c := range m.Probes {
		if c.Hung() {
			s.Hung = append(s.Hung, checks.HungCall{Method: c.Method, Since: c.Start.UTC()})
		}
	}
	for i := range m.Sweep.Inspections {
		if o := &m.Sweep.Inspections[i]; o.Call.Hung() {
			of := checks.Subject{Namespace: o.Pod.Namespace, Pod: o.Pod.Name, Name: o.Name}
			s.Hung = append(s.Hung, checks.HungCall{
				Method: o.Call.Method, Object: o.ID, Name: of.Label(), Since: o.Call.Start.UTC(),
			})
		}
	}
	slices.SortStableFunc(s.Hung, func(a, b checks.HungCall) int { return a.Since.Compare(b.Since) })
	s.Hung = s.Hung[:min(len(s.Hung), mostHung)]
	return s
}

// mostHung bounds the hung calls of a sample: the oldest show where it began.
const mostHung = 8

// Wait waits until the look and the archive that were begun have ended. The error is that of ctx, if it ends first.
func (a *Agent) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.work.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Headline returns the state of a node in one line.
func Headline(r *checks.Report) string {
	if len(r.Causes) == 0 {
		return cmp.Or(strings.Join(r.Problems, "; "), strings.ToUpper(string(r.Status)))
	}
	return strings.ToUpper(string(r.Status)) + ": " + r.Causes[0].Code + ": " + r.Causes[0].Summary
}
