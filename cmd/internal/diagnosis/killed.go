package diagnosis

import (
	"context"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/cmd/internal/dumps"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// A kill is the last one of systemd's watchdog, and what goroutines the daemon wrote into its log then.
type kill struct {
	at     time.Time
	stacks *checks.StacksReport
}

// readKilled returns the analysis of the goroutines that a daemon wrote into its log when systemd's watchdog ended it,
// with SIGABRT; nil where there is none. A Watch reads those of each kill once.
func (c *collector) readKilled(ctx context.Context, logs *journal.Report) *checks.StacksReport {
	killed := facts.CountOf(logs, signature.WatchdogTimeout)
	if killed == nil || killed.Last == nil || len(logs.Dumped) == 0 {
		return nil
	}
	if c.killed.stacks == nil || !c.killed.at.Equal(*killed.Last) {
		c.killed = kill{*killed.Last, dumps.FromLogs(ctx, logs)}
	}
	return c.killed.stacks
}
