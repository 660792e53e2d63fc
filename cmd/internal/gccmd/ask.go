package gccmd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/kdiag/kdiag/cmd/internal/answer"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/gc"
)

// ask shows the plan at a terminal and removes it after a yes. A plan that was made under other circumstances than those of
// the removal must hold again: the lists are taken anew, and what would not be planned now stays.
func (s *session) ask(ctx, within context.Context) error {
	if err := render.Plan(s.env.Out, s.doc, answer.Render(s.env, &s.opts.Flags)); err != nil {
		return err
	}
	in := bufio.NewReader(s.env.In)
	yes, err := s.question(within, in, fmt.Sprintf("Remove these %d? [y/N] ", len(s.doc.Plan.Remove)), "y", "yes")
	if err != nil || !yes {
		return s.declined(ctx, err)
	}
	if s.opts.IgnorePodLiveness && s.opts.liveness != livenessKnown {
		_, _ = fmt.Fprintf(s.env.Err, "Whether pods live is ignored. %s\n", render.LivenessRisk)
		yes, err = s.question(within, in, "Type "+livenessKnown+" to go on: ", livenessKnown)
		if err != nil || !yes {
			return s.declined(ctx, err)
		}
	}
	shown := s.doc.Plan
	s.t.Relist(within, &s.look)
	if s.look.Problem != "" {
		return s.print(s.unable(ctx, s.look.Problem))
	}
	progress := s.progress()
	s.makePlan(within, progress)
	progress.Done()
	plan, changed := gc.Narrow(shown, s.doc.Plan)
	s.doc.Plan, s.doc.Skipped = plan, append(s.doc.Skipped, changed...)
	return s.remove(ctx, within)
}

// question asks at the terminal and reports whether the answer is one of those.
func (s *session) question(ctx context.Context, in *bufio.Reader, text string, want ...string) (bool, error) {
	_, _ = io.WriteString(s.env.Err, text)
	type line struct {
		text string
		err  error
	}
	got, err := cli.Await(ctx, func(context.Context) line {
		text, err := in.ReadString('\n')
		return line{text, err}
	})
	if err != nil {
		return false, err
	}
	said := strings.ToLower(strings.TrimSpace(got.text))
	for _, w := range want {
		if said == w {
			return true, nil
		}
	}
	return false, nil
}

// declined ends a command whose question was not answered with yes.
func (s *session) declined(ctx context.Context, err error) error {
	_, _ = io.WriteString(s.env.Err, "Nothing was removed.\n")
	if err != nil || ctx.Err() != nil {
		return &cli.ExitError{Code: cli.ExitUnknown}
	}
	return nil
}
