package diagnosis

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/internal/dumps"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

const (
	// killedTimeout bounds the reading of dumps out of the log, killedMost the log of one daemon that is read for it: a
	// kubelet with ten thousand goroutines writes some MiB.
	killedTimeout = 5 * time.Second
	killedMost    = 32 << 20
)

// readKilled returns the analysis of the goroutines that a daemon wrote into its log when systemd's watchdog ended it,
// with SIGABRT; nil where there is none.
func (c *collector) readKilled(ctx context.Context, logs *journal.Report) *checks.StacksReport {
	killed, dumped := facts.CountOf(logs, signature.WatchdogTimeout), facts.CountOf(logs, signature.GoroutineDump)
	if c.monitor != nil || killed == nil || dumped == nil || killed.Last == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, killedTimeout)
	defer cancel()
	texts := map[string]*bytes.Buffer{journal.ExportKubelet: {}, journal.ExportRuntime: {}}
	take := func(log, _ string, data []byte) {
		if b := texts[log]; b != nil && b.Len()+len(data) <= killedMost {
			b.Write(data)
		}
	}
	_ = journal.Export(ctx, c.env.Root, killed.Last.Add(-time.Second), killedMost, take) // without it there is no dump
	var all dumps.Set
	for log, role := range map[string]host.Role{
		journal.ExportKubelet: host.RoleKubelet, journal.ExportRuntime: host.RoleRuntime,
	} {
		var one dumps.Set
		source := checks.StackSource{Name: "the journal", Role: string(role)}
		err := one.Read(ctx, source, func() (io.ReadCloser, error) { return io.NopCloser(texts[log]), nil })
		if n := len(one.Dumps); err == nil && n > 0 {
			all.Dumps = append(all.Dumps, one.Dumps[n-1])
		}
	}
	if len(all.Dumps) == 0 {
		return nil
	}
	return all.Report(ctx)
}
