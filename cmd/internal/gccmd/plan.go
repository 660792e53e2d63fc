package gccmd

import (
	"context"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

// firstBatch is for how many ends the runtime is asked at first when the plan has a limit. Each further batch is twice as
// large, until the limit is reached.
const firstBatch = 64

// makePlan asks for the ends that are not known yet and plans.
func (s *session) makePlan(ctx context.Context, progress *render.Progress) {
	rules := s.opts.Rules
	if s.older != nil {
		rules.Limit = 0 // it was the older plan's; what of that may still go is asked here
	}
	s.look.Node.Finished = func(id string) (time.Time, bool) {
		end, ok := s.ends[id]
		return end.FinishedAt, ok
	}
	missed := s.askEnds(ctx, rules, progress)
	plan := gc.Make(s.look.Node, rules, s.env.Now())
	if s.older != nil {
		narrowed, skipped := gc.Narrow(s.older.Plan, plan)
		narrowed.Keep, narrowed.KeptBy = plan.Keep, plan.KeptBy
		plan, s.doc.Skipped = narrowed, skipped
	}
	s.doc.Plan, s.doc.EndsMissed, s.doc.Notes = plan, missed.Count, []string{}
	if missed.Count > 0 {
		s.doc.Notes = append(s.doc.Notes, missedNote(missed))
	}
	if s.look.Keep != "" && rules.Keep == 0 {
		s.doc.Notes = append(s.doc.Notes, fmt.Sprintf(
			"how many of each container the kubelet keeps is not known: %s; %d is taken, --keep N for more", s.look.Keep, plan.Newest))
	}
}

func missedNote(m gc.Missed) string {
	why := "the time was up"
	if m.First != "" {
		why = m.First
	}
	return fmt.Sprintf("the runtime did not say of %d containers when they ended, so they stay: %s", m.Count, why)
}

// askEnds asks for the ends of the candidates, oldest first: of all, or until enough of them may go.
func (s *session) askEnds(ctx context.Context, rules gc.Rules, progress *render.Progress) gc.Missed {
	var ask []gc.Candidate
	for _, c := range gc.Candidates(s.look.Node, rules, s.env.Now()) {
		if _, known := s.ends[c.ID]; !known {
			ask = append(ask, c)
		}
	}
	total, done := len(ask), 0
	var missed gc.Missed
	for batch := max(firstBatch, rules.Limit); len(ask) > 0 && !s.enough(rules); batch *= 2 {
		n := len(ask)
		if rules.Limit > 0 {
			n = min(n, batch)
		}
		ends, failed := gc.Look(ctx, s.t.Client, ask[:n], func(asked int) {
			progress.Update(plegbench.Progress{Phase: "inspect", Done: done + asked, Total: total})
		})
		for id, end := range ends {
			s.ends[id] = end
		}
		ask, done = ask[n:], done+n
		missed.Count += failed.Count
		if missed.First == "" {
			missed.First = failed.First
		}
		if ctx.Err() != nil || failed.Count == n { // the runtime does not answer: the next batch would only wait as long
			missed.Count += len(ask)
			break
		}
	}
	return missed
}

// enough reports whether the containers whose ends are known fill the plan's limit.
func (s *session) enough(rules gc.Rules) bool {
	if rules.Limit == 0 || len(s.ends) < rules.Limit {
		return false
	}
	plan, n := gc.Make(s.look.Node, rules, s.env.Now()), 0
	for i := range plan.Remove {
		if plan.Remove[i].Kind == gc.KindContainer {
			n++
		}
	}
	return n >= rules.Limit
}
