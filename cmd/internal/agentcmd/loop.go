package agentcmd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/agent"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/incident"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// How closely the agent observes a node when a problem begins.
const (
	closeInterval = 5 * time.Second
	closeFor      = 2 * time.Minute
	closerEvery   = 10 * time.Minute // for one reason
)

// captureEvery is how often at most an archive is made of one cause.
const captureEvery = time.Hour

// publishedAgain is the age up to which transitions are published again after a restart. The API server refuses those
// that it has.
const publishedAgain = time.Hour

// An observation is the state of the node at one time.
type observation struct {
	facts  *facts.Input
	report *checks.Report
}

func newService(env cli.Env, opts *options, log *slog.Logger) *service {
	return &service{
		env: env, opts: opts, log: log, tracker: incident.New(),
		metrics: agent.NewMetrics(cli.Version(), opts.metrics == "compact"), evidence: context.Background(),
		busy: make(chan struct{}, 1), captured: map[string]time.Time{}, closer: map[string]time.Time{},
	}
}

// resume continues from the records of an earlier agent, which may be nil.
func (s *service) resume(past *checks.History) {
	if past == nil {
		return
	}
	s.tracker.Resume(past.Transitions)
	for _, t := range past.Transitions {
		if time.Since(t.Noticed) < publishedAgain {
			s.past = append(s.past, t)
		}
	}
	for _, c := range past.Captures {
		if c.Error == "" {
			s.captured[c.Cause] = c.At
		}
	}
}

// loop observes until ctx ends. It returns at once then, whatever hangs.
func (s *service) loop(ctx context.Context) {
	s.setLast(nil)
	for {
		began := time.Now()
		done := make(chan struct{})
		s.work.Go(func() {
			defer close(done)
			s.update(ctx, began.Before(s.closely))
		})
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
		interval := s.opts.interval
		if time.Now().Before(s.closely) {
			interval = min(interval, closeInterval)
		}
		select {
		case <-time.After(interval - time.Since(began)):
		case <-ctx.Done():
			return
		}
	}
}

// lastReport returns the report of the last observation; nil before the first.
func (s *service) lastReport() *checks.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// alive reports whether the loop runs: the last observation is not longer ago than recorder.Late allows.
func (s *service) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.observed) < recorder.Late(s.opts.interval)
}

func (s *service) setLast(r *checks.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.observed = r, time.Now()
}

// observeNode collects from the node and judges the facts, within ctx.
func (s *service) observeNode(ctx context.Context, closely bool) (*observation, error) {
	node, err := s.watch.Observe(ctx, closely)
	if err != nil {
		return nil, err
	}
	r := judge.NewReport(document.Header(s.env, "agent", ""), node.Facts)
	document.Complete(r, node.Problems)
	return &observation{node.Facts, r}, nil
}

// update observes the node once, and records, publishes and shows its state.
func (s *service) update(ctx context.Context, closely bool) {
	began := time.Now()
	now, err := s.observe(ctx, closely)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.log.Error("could not observe", "error", err)
		now = &observation{&facts.Input{}, &checks.Report{Header: checks.Header{
			APIVersion: checks.APIVersion, Kind: checks.KindReport, GeneratedAt: began, Status: checks.Unknown,
			Problems: []string{err.Error()},
		}}}
	}
	since := map[string]time.Time{}
	for _, t := range s.tracker.Active() {
		since[t.Cause] = t.At
	}
	changed := s.tracker.Update(now.report, incident.Began(now.facts))
	s.metrics.Record(now.report, now.facts, time.Since(began))
	for _, t := range changed {
		level, text := slog.LevelWarn, t.Summary
		if t.To == checks.CauseClear {
			level, text = slog.LevelInfo, t.Cause+" is gone after "+units.Duration(t.At.Sub(since[t.Cause]))
		}
		s.log.LogAttrs(ctx, level, text, s.attributes(t)...)
	}
	if r := s.recorder; r != nil {
		r.Append(began, recorder.KindSample, sample(now))
		for _, t := range changed {
			r.Append(began, recorder.KindTransition, t)
		}
	}
	if s.publisher != nil {
		s.publisher.Publish(now.report, append(s.past, changed...))
		s.past = nil
	}
	slow := isSlow(now.facts)
	if slow && !s.slow {
		s.observeCloser("")
	}
	s.slow = slow
	for _, t := range changed {
		if t.From == checks.CauseClear {
			s.observeCloser(t.Cause)
		}
	}
	s.captureNext(now)
	if s.uploads != nil {
		s.mu.Lock()
		s.seen = now
		s.mu.Unlock()
	}
	s.setLast(now.report)
	s.show(now.report)
}

// attributes are the attributes of a transition in the log: in text those that the summary leaves open.
func (s *service) attributes(t checks.Transition) []slog.Attr {
	if s.opts.logFormat != "json" {
		return []slog.Attr{
			slog.String("cause", t.Cause), slog.String("from", t.From), slog.String("to", t.To), slog.Time("at", t.At),
		}
	}
	return []slog.Attr{
		slog.String("event.name", "kdiag.transition"), slog.String("kdiag.cause", t.Cause),
		slog.String("kdiag.severity", string(t.Severity)), slog.String("kdiag.from", t.From),
		slog.String("kdiag.to", t.To), slog.Time("kdiag.at", t.At), slog.String("kdiag.subject", t.Subject),
		slog.String("kdiag.caused_by", t.CausedBy), slog.Time("kdiag.incident", t.Incident),
	}
}

// observeCloser begins closer observations, unless they were begun for the same reason not long ago.
func (s *service) observeCloser(why string) {
	if now := time.Now(); now.Sub(s.closer[why]) > closerEvery {
		s.closer[why], s.closely = now, now.Add(closeFor)
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

// captureNext writes an archive, in the background, for the first confirmed critical cause that is no consequence of
// another and has no archive yet. With --upload it does so as well when such a cause is first seen: the node may not
// live until it is confirmed. If an agent is killed meanwhile, the next agent writes it.
func (s *service) captureNext(now *observation) {
	for _, t := range s.tracker.Active() {
		there := slices.ContainsFunc(now.report.Causes, func(c checks.Cause) bool { return c.Code == t.Cause })
		if !there || t.Severity != checks.Critical || t.CausedBy != "" {
			continue
		}
		key := t.Cause
		if t.To == checks.CauseOnset {
			if s.uploads == nil {
				continue
			}
			key += onsetKey
		}
		if s.begin(s.evidence, now, t.Cause, key, t.Noticed, captureEvery) {
			return
		}
	}
}

// onsetKey ends the keys of archives that were made at an onset: when the cause is confirmed there is another one, of a
// closer look.
const onsetKey = " onset"

// begin begins to write an archive, unless one is being written, or one with this key was begun in the time before. It
// reports whether it did.
func (s *service) begin(
	ctx context.Context, of *observation, cause, key string, noticed time.Time, every time.Duration,
) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.capture == nil || noticed.Sub(s.captured[key]) < every {
		return false
	}
	select {
	case s.busy <- struct{}{}:
	default:
		return false
	}
	s.captured[key] = time.Now()
	s.work.Go(func() {
		defer func() { <-s.busy }()
		taken := s.capture(ctx, of, cause)
		if taken.Error == "" {
			s.metrics.Captured(cause)
		}
		if r := s.recorder; r != nil {
			r.Append(taken.At, recorder.KindCapture, taken)
		}
		s.log.Info("evidence", "cause", cause, "path", taken.Path, "bytes", taken.Bytes, "problem", taken.Error)
	})
	return true
}

// sample returns the part of an observation that is recorded.
func sample(now *observation) checks.LookSample {
	s := checks.LookSample{At: now.report.GeneratedAt, Status: now.report.Status}
	for _, c := range now.report.Causes {
		s.Causes = append(s.Causes, checks.LookCause{
			Code: c.Code, Severity: c.Severity, Confidence: c.Confidence, Subject: c.Subject.Label(),
		})
	}
	m, sum := now.facts.Measurement, now.facts.Summary
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

// wait waits for the observation and the archive under way. It returns an error if ctx ends first.
func (s *service) wait(ctx context.Context) error {
	_, err := deadline.Run(ctx, "ending", func(context.Context) (any, error) {
		s.work.Wait()
		return nil, nil
	})
	return err
}

// show shows the state to systemd and node_exporter.
func (s *service) show(r *checks.Report) {
	status := headline(r)
	if s.recorder != nil && s.recorder.Problem() != "" {
		status += fmt.Sprintf("; %d records lost: %s", s.recorder.Lost(), s.recorder.Problem())
	}
	notify("STATUS=" + strings.ReplaceAll(status, "\n", " "))
	if s.opts.textfileDir == "" || !s.writing.CompareAndSwap(false, true) {
		return
	}
	go func() { // the disk may hang
		defer s.writing.Store(false)
		if err := s.metrics.WriteTextfile(s.opts.textfileDir); err != nil {
			s.log.Error("--textfile-dir", "error", err)
		}
	}()
}

// headline returns the state of a node in one line.
func headline(r *checks.Report) string {
	if len(r.Causes) == 0 {
		return cmp.Or(strings.Join(r.Problems, "; "), strings.ToUpper(string(r.Status)))
	}
	return strings.ToUpper(string(r.Status)) + ": " + r.Causes[0].Code + ": " + r.Causes[0].Summary
}
