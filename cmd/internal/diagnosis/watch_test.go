package diagnosis

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/journal"
)

// watch returns a Watch of a runtime on a host below a root, which it makes.
func watch(t *testing.T, socket, root string) *Watch {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(root, "proc"), 0o755))
	env := cli.System()
	env.Err = io.Discard
	w := NewWatch(t.Context(), env, &cli.Flags{
		Endpoint: "unix://" + socket, HostRoot: root, Timeout: 20 * time.Second, RPCTimeout: 10 * time.Second,
	}, WatchOptions{
		Interval: time.Minute, Sweep: time.Hour, Walk: time.Hour, Request: Request{Limits: checks.DefaultLimits()},
	})
	t.Cleanup(w.Close)
	return w
}

// listen serves a healthy runtime.
func listen(t *testing.T, socket string) (stop func()) {
	t.Helper()
	healthy, _ := fake.Builtin("healthy")
	server, err := fake.New(healthy)
	must(t, err)
	stop, err = fake.Listen(t.Context(), server, socket)
	must(t, err)
	return stop
}

// TestWatchWalks has a folder come or go before each look. The walks, of which one sees it, are made when they are due,
// in the first closer look, when the runtime does not answer, and once after that.
func TestWatchWalks(t *testing.T) {
	t.Parallel() // it waits for a runtime that is gone
	socket, root := filepath.Join(t.TempDir(), "cri.sock"), t.TempDir()
	var stop func()
	listen := func() { stop = listen(t, socket) }
	w := watch(t, socket, root)
	nothing := func() {}
	recovered := func() {
		for answered := false; !answered; {
			node, err := w.Observe(t.Context(), false)
			must(t, err)
			answered = node.Facts.Measurement.Answered()
		}
	}
	folder := filepath.Join(root, "run/crio")
	there, seen := false, false
	for _, tt := range []struct {
		name           string
		before         func()
		closely, walks bool
	}{
		{"first", listen, false, true},
		{"usual", nothing, false, false},
		{"closer", nothing, true, true},
		{"closer again", nothing, true, false},
		{"usual after that", nothing, false, false},
		{"closer anew", nothing, true, true},
		{"no runtime", func() { stop() }, false, true},
		{"the runtime is back", listen, false, true},
		{"all is well again", recovered, false, false},
	} {
		tt.before()
		switch {
		case seen != there: // the change before is still to be seen
		case there:
			must(t, os.Remove(folder))
			there = false
		default:
			must(t, os.MkdirAll(folder, 0o755))
			there = true
		}
		node, err := w.Observe(t.Context(), tt.closely)
		must(t, err)
		seen = slices.ContainsFunc(node.Facts.Node.Folders.Value, func(f host.Folder) bool { return f.Path == "/run/crio" })
		if (seen == there) != tt.walks {
			t.Errorf("%s: it walked: %v, want %v", tt.name, !tt.walks, tt.walks)
		}
	}
	stop()
}

// TestWatchDumps takes dumps beside looks that find a runtime; the race detector sees to it that they share nothing. It
// reads the dump in the log of a kubelet that systemd's watchdog ended, once.
func TestWatchDumps(t *testing.T) {
	socket, root := filepath.Join(t.TempDir(), "cri.sock"), t.TempDir()
	defer listen(t, socket)()
	w := watch(t, socket, root)
	dump, err := os.ReadFile("../../../checks/stacks/testdata/dumps/kubelet-pleg.txt")
	must(t, err)
	logs := filepath.Join(root, "var/log")
	must(t, os.MkdirAll(logs, 0o755))
	at := time.Now().UTC().Format(time.RFC3339)
	must(t, os.WriteFile(filepath.Join(logs, "kubelet.log"), []byte(at+" n systemd[1]: kubelet.service: Watchdog timeout "+
		"(limit 30s)!\n"+at+" n kubelet[811]: "+strings.ReplaceAll("SIGABRT: abort\n"+string(dump), "\n", "\n"+at+
		" n kubelet[811]: ")+"\n"), 0o600))
	taken := make(chan int)
	go func() {
		n := 0
		for w.found() == nil || n == 0 {
			n = len(w.CaptureStacks(t.Context()))
		}
		taken <- n
	}()
	node, err := w.Observe(t.Context(), false)
	must(t, err)
	if got := node.Facts.Limits.RPCTimeout; got != 10*time.Second {
		t.Errorf("the facts have an RPC timeout of %v, not that of the flags", got)
	}
	again, err := w.Observe(t.Context(), false)
	must(t, err)
	if s := node.Facts.LogStacks; s == nil || len(s.Known) == 0 || s != again.Facts.LogStacks {
		t.Errorf("the dump in the log: %v, then %v", s, again.Facts.LogStacks)
	}
	if n := <-taken; n != 1 {
		t.Errorf("%d dumps, want that of the runtime, which has no process", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
