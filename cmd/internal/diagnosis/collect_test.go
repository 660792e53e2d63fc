package diagnosis

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/journal"
)

// TestReadLogs reads the logs in each way in which that can end. The answer comes within a third of the command's
// time, or five seconds.
func TestReadLogs(t *testing.T) {
	const window = 15 * time.Minute
	report := &journal.Report{Lines: 7}
	type read = func(context.Context, string, time.Time) (*journal.Report, error)
	returns := func(r *journal.Report, err error) read {
		return func(_ context.Context, root string, since time.Time) (*journal.Report, error) {
			if root != "/host" || time.Since(since) != window {
				return nil, errors.New("another root or window")
			}
			return r, err
		}
	}
	hangs := func(context.Context, string, time.Time) (*journal.Report, error) { // whatever its context does
		time.Sleep(time.Hour)
		return report, nil
	}
	denied := &fs.PathError{Op: "open", Path: "/var/log/journal", Err: fs.ErrPermission}
	for _, tt := range []struct {
		name    string
		flags   cli.Flags
		window  time.Duration
		read    read
		want    *journal.Report
		missing string
		within  time.Duration
	}{
		{"read", cli.Flags{}, window, returns(report, nil), report, "", 0},
		{"no permission", cli.Flags{}, window, returns(nil, denied), nil, denied.Error(), 0},
		{"in part", cli.Flags{}, window, returns(report, errors.New("damaged")), report, "damaged", 0},
		{"nothing", cli.Flags{}, window, returns(nil, nil), nil, "there is none", 0},
		{"hangs", cli.Flags{}, window, hangs, nil, "it took longer than 5s", 5 * time.Second},
		{"little time", cli.Flags{Timeout: 2 * time.Second}, window, hangs, nil, "it took longer than 567ms", 1e9},
		{"simulated", cli.Flags{Simulate: "healthy"}, window, hangs, nil, "the runtime is simulated", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.flags.Timeout == 0 {
					tt.flags.Timeout = 30 * time.Second
				}
				start := time.Now()
				env := cli.Env{Now: time.Now, Root: "/host"}
				c := collector{
					env: env, flags: &tt.flags, logs: tt.read,
					request: Request{Limits: checks.Limits{JournalWindow: tt.window}},
				}
				got, missing := c.readLogs(t.Context())
				if d := time.Since(start); d > tt.within {
					t.Errorf("after %v, want %v", d, tt.within)
				}
				if got != tt.want || missing != tt.missing {
					t.Errorf("%p, %q, want %p and %q", got, missing, tt.want, tt.missing)
				}
				if got != nil && got.GeneratedAt.IsZero() {
					t.Error("the report has no time")
				}
				time.Sleep(2 * time.Hour) // lets what was abandoned end
			})
		})
	}
}
