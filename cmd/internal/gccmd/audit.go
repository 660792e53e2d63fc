package gccmd

import (
	"context"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/gc"
)

// openAudit prepares the file of --audit; nil without that flag. Nothing is removed when it cannot be written.
func (s *session) openAudit(ctx context.Context) (*gc.Audit, error) {
	if s.opts.audit == "" {
		return nil, nil
	}
	count := len(s.doc.Plan.Remove)
	audit, err := disk(ctx, "--audit", func() (*gc.Audit, error) {
		return gc.OpenAudit(s.opts.audit, s.look.Runtime, count, s.env.Now())
	})
	if err != nil {
		return nil, &cli.HintError{Err: err, Code: cli.ExitUnknown, Hint: "nothing was removed; name a file on a disk with room"}
	}
	bytes, foreign := audit.Mended()
	if bytes > 0 {
		s.say("the audit file ended in a line that a crash had cut short; its %d bytes were taken off", bytes)
	}
	if foreign > 0 {
		s.say("the audit file has %d lines that are no records of kdiag; they stay", foreign)
	}
	back := 0
	for i := range s.doc.Plan.Remove {
		if audit.Has(s.doc.Plan.Remove[i].ID) {
			back++
		}
	}
	if back > 0 {
		s.say("%d of these were removed before, by the audit file, and are there again", back)
	}
	return audit, nil
}
