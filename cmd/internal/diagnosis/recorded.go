package diagnosis

import (
	"context"
	"path/filepath"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// DefaultDataDir is where the agent records.
const DefaultDataDir = "/var/lib/kdiag"

// Bounds of reading the records: an incident that began long ago shows in each of them.
const (
	recordedWithin = 6 * time.Hour
	recordedLimit  = time.Second // the disk may hang
)

// readRecords returns the time since which the agent of this node has recorded a problem that goes on; empty where
// there is no agent, or no problem.
func (c *collector) readRecords(ctx context.Context) string {
	if !c.request.Probes.Records || c.flags.Simulate != "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, recordedLimit)
	defer cancel()
	h, err := deadline.Run(ctx, "reading the agent's records", func(ctx context.Context) (*checks.History, error) {
		dir := filepath.Join(c.env.Root, DefaultDataDir)
		return recorder.History(ctx, dir, c.env.Now().Add(-recordedWithin), time.Time{})
	})
	if err != nil {
		return ""
	}
	return recorder.Since(h, func(t time.Time) string { return t.UTC().Format(time.TimeOnly) })
}
