package diagnosis

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/internal/testkit"
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
	dump := testkit.Read(t, "../../../checks/stacks/testdata/dumps/kubelet-pleg.txt")
	at := time.Now().UTC().Format(time.RFC3339)
	testkit.Tree{TB: t, Root: root}.Write("var/log/kubelet.log", at+" n systemd[1]: kubelet.service: Watchdog timeout "+
		"(limit 30s)!\n"+at+" n kubelet[811]: "+strings.ReplaceAll("SIGABRT: abort\n"+dump, "\n", "\n"+at+
		" n kubelet[811]: ")+"\n")
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
	testkit.Equal(t, "the RPC timeout of the flags", 10*time.Second, node.Facts.Limits.RPCTimeout)
	again, err := w.Observe(t.Context(), false)
	must(t, err)
	if s := node.Facts.LogStacks; s == nil || len(s.Known) == 0 || s != again.Facts.LogStacks {
		t.Errorf("the dump in the log: %v, then %v", s, again.Facts.LogStacks)
	}
	if n := <-taken; n != 1 {
		t.Errorf("%d dumps, want that of the runtime, which has no process", n)
	}
}

var must = testkit.Must

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
		read    read
		want    *journal.Report
		missing string
		within  time.Duration
	}{
		{"read", cli.Flags{}, returns(report, nil), report, "", 0},
		{"no permission", cli.Flags{}, returns(nil, denied), nil, denied.Error(), 0},
		{"in part", cli.Flags{}, returns(report, errors.New("damaged")), report, "damaged", 0},
		{"hangs", cli.Flags{}, hangs, nil, "it took longer than 5s", 5 * time.Second},
		{"little time", cli.Flags{Timeout: 2 * time.Second}, hangs, nil, "it took longer than 567ms", 1e9},
		{"simulated", cli.Flags{Simulate: "healthy"}, hangs, nil, "the runtime is simulated", 0},
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
					request: Request{Limits: checks.Limits{JournalWindow: window}},
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

// pack writes a bundle of files, by path, and returns where it is.
func pack(t *testing.T, level redact.Level, names []string, files map[string]string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x.tar.zst")
	out, err := bundle.Create(name)
	must(t, err)
	defer out.Close()
	w, err := bundle.NewWriter(out, bundle.Options{Redactor: redact.New(level, names), Redact: level, Now: time.Now})
	must(t, err)
	for path, text := range files {
		format := redact.Text
		if filepath.Ext(path) == ".json" {
			format = redact.JSON
		}
		must(t, w.Add(path, "test", format, strings.NewReader(text)))
	}
	head := checks.Header{Host: "node-7", GeneratedAt: time.Date(2026, 3, 14, 3, 9, 26, 0, time.UTC)}
	_, err = w.Close(head)
	must(t, err)
	return name
}

// A found is what a report must have in common with that of the node.
type found struct {
	Status checks.Verdict
	Causes []string
	Checks []string
}

func essence(r *checks.Report) found {
	f := found{Status: r.Status}
	for _, c := range r.Causes {
		kind := ""
		if c.Subject != nil {
			kind = c.Subject.Kind
		}
		f.Causes = append(f.Causes, strings.Join([]string{c.Code, string(c.Severity), kind, c.CausedBy}, " "))
		f.Causes = append(f.Causes, strings.Repeat("*", int(c.Confidence*100)))
	}
	for _, c := range r.Checks {
		f.Checks = append(f.Checks, c.ID+" "+string(c.Status))
	}
	return f
}

// elsewhere is a machine that is not the node.
func elsewhere(out io.Writer) cli.Env {
	return cli.Env{
		In: strings.NewReader(""), Out: out, Err: io.Discard, Now: time.Now, Width: 100,
		Getenv: func(string) string { return "" }, Hostname: func() (string, error) { return "elsewhere", nil },
	}
}

// open opens a bundle as --from does.
func open(t *testing.T, name string) *archive.Archive {
	t.Helper()
	s, err := archive.Open(t.Context(), elsewhere(io.Discard), &cli.Flags{Timeout: time.Minute}, "--from", name)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// from reads a bundle as kdiag node --from does.
func from(t *testing.T, name, output string) (text string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = Report(t.Context(), elsewhere(&out), &cli.Flags{From: name, Output: output, Timeout: time.Minute},
		Request{Command: "node"}, render.Node)
	return out.String(), err
}

// TestFromGivesTheSameVerdict packs the facts of every recorded case and judges them out of the bundle.
func TestFromGivesTheSameVerdict(t *testing.T) {
	cases, _ := filepath.Glob("../../../checks/*/testdata/*/facts.json")
	if len(cases) < 30 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, file := range cases {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text := testkit.Read(t, file)
			var in facts.Input
			must(t, json.Unmarshal([]byte(text), &in))
			want := judge.NewReport(checks.Header{}, &in)
			for _, level := range []redact.Level{redact.Standard, redact.Strict} {
				name := pack(t, level, append(collect.Names(&in), "node-7"), map[string]string{bundle.FactsName: text})
				printed, _ := from(t, name, "json") // the error is an exit code
				var got checks.Report
				must(t, json.Unmarshal([]byte(printed), &got))
				testkit.Equal(t, string(level), essence(want), essence(&got))
				if (got.Host == "node-7") != (level == redact.Standard) || !got.GeneratedAt.Equal(in.Now.Truncate(time.Second)) ||
					!strings.HasPrefix(got.Notes[0], "captured 2026-03-14T03:09:26Z in x.tar.zst") {
					t.Error(got.Header, got.Notes)
				}
			}
		})
	}
}

// TestFromStacks reads the dumps of a bundle.
func TestFromStacks(t *testing.T) {
	s := open(t, pack(t, redact.Standard, nil, map[string]string{
		bundle.SourcesName: `{"runtime-1.txt": {"pid": 1, "role": "runtime"},
			"shim-2.txt": {"pid": 2, "problem": "stopped"}}`,
		"stacks/runtime-1.txt": "goroutine 1 [running]:\nmain.main()\n\t/main.go:1\n", "stacks/other.txt": "",
	}))
	all, err := s.Dumps(t.Context())
	must(t, err)
	var got []checks.StackSource
	for _, d := range all.Dumps {
		got = append(got, d.Source)
	}
	want := []checks.StackSource{
		{Name: "other.txt", Problem: "empty"},
		{Name: "runtime-1.txt", PID: 1, Role: "runtime", Goroutines: 1},
		{PID: 2, Problem: "stopped"},
	}
	if diff := cmp.Diff(want, got); diff != "" || all.Node != nil {
		t.Error(diff, all.Node)
	}
	if _, err := s.Logs(); err == nil || !strings.Contains(err.Error(), "holds no logs/") {
		t.Error(err)
	}
}

// TestFromForged reads facts that no node has: they are an error, or judged, and never a panic.
func TestFromForged(t *testing.T) {
	for _, text := range []string{
		`{"Measurement": {"Containers": {"Containers": [{}]}, "Sandboxes": {"Sandboxes": [{}]}}}`, "{}", "null", "[]", "{",
		`{"Now": "x"}`,
	} {
		out, err := from(t, pack(t, redact.Standard, nil, map[string]string{bundle.FactsName: text}), "text")
		if code, _, _ := cli.ExitCode(err); code != cli.ExitUnknown || out == "" && err.Error() == "" {
			t.Errorf("%s: exit code %d, %v\n%s", text, code, err, out)
		}
	}
}

// TestFromReport shows the report of the node where its facts are not whole, without the commands in it.
func TestFromReport(t *testing.T) {
	const report = `{"kind": "Report", "status": "unhealthy", "host": "node-7", "causes": [{"code": "RuntimeHung",
		"summary": "it hangs", "nextSteps": [{"why": "x", "command": "reboot"}]}], "nextSteps": [{"command": "reboot"}]}`
	name := pack(t, redact.Standard, nil, map[string]string{bundle.FactsName: `{"Now": `, bundle.ReportName: report})
	text, _ := from(t, name, "text")
	if strings.Contains(text, "reboot") || !strings.Contains(text, "node-7  RuntimeHung") ||
		!strings.Contains(text, "facts.json: it is cut off") || !strings.Contains(text, "as it was reported there") {
		t.Error(text)
	}
}
