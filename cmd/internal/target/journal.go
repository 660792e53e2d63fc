package target

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
)

// The time that reading the node's own logs may take: a part of the command's, and never long. A healthy journal gives its
// last quarter of an hour in milliseconds; on a disk that hangs the verdict must not wait for it.
const (
	journalShare   = 3
	journalTimeout = 5 * time.Second
)

// A journalView is what the node's logs say, or why they could not be read.
type journalView struct {
	report  *journal.Report
	missing string
}

// A reader reads the logs below root from since on; journal.Recent outside tests.
type reader func(ctx context.Context, root string, since time.Time) (*journal.Report, error)

// lookAtJournal reads the node's logs of the last window beside everything else. It answers within its own deadline,
// whatever hangs; what still reads then is left behind.
func lookAtJournal(ctx context.Context, env cli.Env, f *cli.Flags, window time.Duration, read reader) <-chan journalView {
	out := make(chan journalView, 1)
	switch {
	case f.Simulate != "":
		out <- journalView{missing: "the runtime is simulated"}
		return out
	case window <= 0:
		out <- journalView{}
		return out
	}
	asking, _ := f.Budget()
	timeout := min(asking/journalShare, journalTimeout)
	now := env.Now()
	go func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		report, err := deadline.Run(ctx, func(ctx context.Context) (*journal.Report, error) {
			report, err := read(ctx, env.Root, now.Add(-window))
			if report != nil {
				judge.Journal(report)
			}
			return report, err
		})
		view := journalView{report: report}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			view.missing = fmt.Sprintf("it took longer than %v", timeout.Round(time.Millisecond))
		case err != nil:
			view.missing = shorten(err.Error())
		case report == nil:
			view.missing = "there is none"
		}
		if view.report != nil && view.report.GeneratedAt.IsZero() {
			view.report.GeneratedAt = now
		}
		out <- view
	}()
	return out
}
