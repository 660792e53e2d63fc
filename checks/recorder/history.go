package recorder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/units"
)

// ErrNoRecords means that a folder holds no record within the time that was asked for.
var ErrNoRecords = errors.New("no records")

// Last returns the time of the last record of a folder. The error is that of Read, or ErrNoRecords.
func Last(ctx context.Context, dir string) (last time.Time, _ error) {
	_, err := Read(ctx, dir, func(r Record) { last = r.At })
	if err == nil && last.IsZero() {
		err = ErrNoRecords
	}
	return last, err
}

// History returns the records of a folder from since until until; a zero time is no limit. The error is that of Read,
// or ErrNoRecords if there is no sample.
func History(ctx context.Context, dir string, since, until time.Time) (*checks.History, error) {
	b := builder{History: checks.History{
		Header:      checks.Header{APIVersion: checks.APIVersion, Kind: checks.KindHistory, Problems: []string{}},
		Transitions: []checks.Transition{}, Captures: []checks.TakenCapture{}, Gaps: []checks.Gap{},
		Incidents: []checks.Incident{},
	}, since: since, until: until}
	damages, err := Read(ctx, dir, b.add)
	if err == nil && len(b.Samples) == 0 {
		err = ErrNoRecords
	}
	if err != nil {
		return nil, err
	}
	earlier := func(a, b checks.LookSample) int { return a.At.Compare(b.At) } // a clock may have been set back
	b.From, b.To = slices.MinFunc(b.Samples, earlier).At, slices.MaxFunc(b.Samples, earlier).At
	b.Status = b.Samples[len(b.Samples)-1].Status
	if b.stopped {
		b.Gaps = append(b.Gaps, checks.Gap{From: b.last, To: b.last, Why: "the agent was stopped; no record since"})
	}
	b.damaged(damages)
	b.incidents()
	b.Samples = thin(b.Samples)
	b.Transitions = slices.DeleteFunc(b.Transitions, func(t checks.Transition) bool { return t.Noticed.Before(since) })
	for i := range b.Captures {
		c := &b.Captures[i]
		c.Path = filepath.Join(dir, filepath.Join("/", c.Path)) // never above the folder
		if _, err := os.Lstat(c.Path); err != nil {
			c.Error = cmp.Or(c.Error, "no longer there: the oldest are removed to make room")
		}
	}
	return &b.History, nil
}

const (
	mostSamples = 4000 // of a History: a terminal has 100 columns, a page 1,000
	interval    = 30   // seconds, of an agent without a record of its start: the default of --interval
)

// Late returns the longest time between two samples of a working agent: three intervals, at least 45 seconds, because a
// sample takes up to 20 while calls hang.
func Late(interval time.Duration) time.Duration { return max(3*interval, 45*time.Second) }

// A builder makes a History of records in the order in which they were written.
type builder struct {
	checks.History
	since   time.Time
	until   time.Time
	last    time.Time // of the last sample
	wrote   Start     // the agent that wrote it
	next    *Start    // an agent that was started since
	stopped bool      // since
}

// add adds a record. Those before the time that was asked for explain those in it: the boot, the interval, the begin of
// an incident.
func (b *builder) add(r Record) {
	within, err := !r.At.Before(b.since), error(nil)
	switch {
	case !b.until.IsZero() && r.At.After(b.until):
	case r.Kind == KindStart:
		err = json.Unmarshal(r.Data, &b.next)
	case r.Kind == KindStop:
		b.stopped = true
	case r.Kind == KindTransition:
		err = decode(r, &b.Transitions)
	case r.Kind == KindCapture && within:
		err = decode(r, &b.Captures)
	case r.Kind == KindSample:
		if within {
			err = decode(r, &b.Samples)
		}
		if n := len(b.Samples); n > 0 && err == nil {
			b.gap(r.At, b.Samples[n-1].Causes)
		}
		b.wrote, b.next, b.last, b.stopped = *cmp.Or(b.next, &b.wrote), nil, r.At, false
	}
	if err != nil {
		b.Problems = []string{"not all records are of this version of kdiag: " + err.Error()}
	}
}

func decode[T any](r Record, list *[]T) error {
	var v T
	err := json.Unmarshal(r.Data, &v)
	if err == nil {
		*list = append(*list, v)
	}
	return err
}

// gap adds the time since the last sample if a sample is missing in it, or the node restarted or the clock changed. all
// are the causes of the next sample.
func (b *builder) gap(at time.Time, all []checks.LookCause) {
	jumped := func(c checks.LookCause) bool { return c.Code == causes.ClockJumped }
	restarted := b.next != nil && b.wrote.BootID != "" && b.next.BootID != b.wrote.BootID
	why := ""
	late := Late(time.Duration(cmp.Or(b.wrote.IntervalSeconds, interval) * float64(time.Second)))
	switch missing := at.Sub(b.last); {
	case b.last.IsZero():
	case restarted && b.stopped:
		why = "the node was shut down or restarted"
	case restarted:
		why = "the node restarted without a shutdown: power cut, reset or crash"
	case missing < 0:
		why = "the clock was set back"
	case missing <= late:
	case b.stopped:
		why = "the agent was stopped"
	case slices.ContainsFunc(all, jumped):
		why = "the clock was set forward, or the node was suspended"
	case b.next != nil:
		why = "the agent ended without being stopped"
	default:
		why = "nothing was written: the agent stood still, or its disk was full or did not answer"
	}
	if why != "" {
		b.Gaps = append(b.Gaps, checks.Gap{From: b.last, To: at, Why: why, Restarted: restarted})
	}
}

// damaged adds damages to the problems, and to the gaps that they may explain.
func (b *builder) damaged(all []Damage) {
	early := func(d Damage) bool { return !d.To.IsZero() && d.To.Before(b.since) }
	for _, d := range slices.DeleteFunc(all, early) {
		what := filepath.Base(d.File) + ": " + units.Size(d.Bytes) + " damaged"
		if d.Err != nil {
			what = filepath.Base(d.File) + ": " + d.Err.Error()
		}
		b.Problems = append(b.Problems, what)
		for i, g := range b.Gaps {
			if !g.Restarted && !d.From.After(g.To) && (d.To.IsZero() || !d.To.Before(g.From)) {
				b.Gaps[i].Why = "records are missing: " + what
			}
		}
	}
}

// thin keeps every n-th sample, and those before and after a change.
func thin(all []checks.LookSample) []checks.LookSample {
	every, kept := 1+len(all)/mostSamples, []checks.LookSample{}
	same := func(x, y checks.LookSample) bool {
		return x.Status == y.Status && len(x.Causes) == len(y.Causes) && len(x.Hung) == len(y.Hung)
	}
	for i, s := range all {
		if i%every == 0 || i+1 == len(all) || !same(all[i-1], s) || !same(s, all[i+1]) {
			kept = append(kept, s)
		}
	}
	return kept
}

// incidents groups the transitions into incidents. The cause of one is its first critical cause that follows from no
// other.
func (b *builder) incidents() {
	var slow *time.Time // since when the runtime is, in whatever incident
	for _, t := range b.Transitions {
		n := slices.IndexFunc(b.Incidents, func(i checks.Incident) bool { return i.Began.Equal(t.Incident) })
		if n < 0 {
			n, b.Incidents = len(b.Incidents), append(b.Incidents, checks.Incident{Began: t.Incident})
		}
		i, on := &b.Incidents[n], t.To != checks.CauseClear
		root := on && t.Severity == checks.Critical && t.CausedBy == ""
		if i.Cause == "" || root && i.Severity != checks.Critical {
			i.From, i.Cause, i.Severity, i.Summary, i.SlowSince = t.At, t.Cause, t.Severity, t.Summary, slow
		}
		if t.Cause == i.Cause {
			i.To, i.Open = t.At, on
		}
		if t.Cause == causes.RuntimeSlow && (slow == nil || !on) {
			if slow = nil; on {
				slow = &t.At
			}
		}
	}
	for n := range b.Incidents {
		i := &b.Incidents[n]
		if i.Open {
			i.To = b.To
		}
		hung := slices.IndexFunc(b.Samples, func(s checks.LookSample) bool {
			return len(s.Hung) > 0 && i.Severity == checks.Critical && !s.At.Before(i.Began) && !s.At.After(i.To)
		})
		if hung >= 0 {
			i.Hung = &b.Samples[hung].Hung[0] // the oldest
		}
	}
	b.Incidents = slices.DeleteFunc(b.Incidents, func(i checks.Incident) bool { return i.To.Before(b.since) })
}

// Since returns since when a node is in the incident that is open, with times as format makes them: "slow since
// 14:02:10, hung since 14:05:12, first payments/ledger-db-0 ledger". It is empty when there is none.
func Since(h *checks.History, format func(time.Time) string) string {
	n := slices.IndexFunc(h.Incidents, func(i checks.Incident) bool { return i.Open })
	if n < 0 {
		return ""
	}
	i, slow := h.Incidents[n], ""
	if i.Hung == nil {
		return i.Cause + " since " + format(i.From)
	}
	if i.SlowSince != nil {
		slow = "slow since " + format(*i.SlowSince) + ", "
	}
	return slow + "hung since " + format(i.Hung.Since) + ", first " + cmp.Or(i.Hung.Name, i.Hung.Object, i.Hung.Method)
}
