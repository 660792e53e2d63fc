package target

import (
	"context"
	"path/filepath"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// DefaultDataDir is where the agent records.
const DefaultDataDir = "/var/lib/kdiag"

// What is read of the records for an answer: an incident that began long ago shows in each of them.
const (
	recordedWithin = 6 * time.Hour
	recordedLimit  = time.Second // the disk may hang
)

// recorded returns what the agent of this node recorded of what goes on: since when. It reads beside everything else;
// what it returns waits for that, and is empty where there is no agent or nothing goes on.
func recorded(ctx context.Context, env cli.Env, f *cli.Flags) func() string {
	if f.Simulate != "" {
		return func() string { return "" }
	}
	ctx, cancel := context.WithTimeout(ctx, recordedLimit)
	since := make(chan string, 1)
	go func() {
		defer cancel()
		h, err := deadline.Run(ctx, "reading the agent's records", func(ctx context.Context) (*checks.History, error) {
			dir := filepath.Join(env.Root, DefaultDataDir)
			return recorder.History(ctx, dir, env.Now().Add(-recordedWithin), time.Time{})
		})
		if err != nil {
			since <- ""
			return
		}
		since <- recorder.Since(h, func(t time.Time) string { return t.UTC().Format(time.TimeOnly) })
	}()
	return func() string { return <-since }
}
