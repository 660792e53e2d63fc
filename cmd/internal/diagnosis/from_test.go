package diagnosis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/plegbench"
)

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
	if _, err := w.Close(head); err != nil {
		t.Fatal(err)
	}
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
func from(t *testing.T, name, output string) string {
	t.Helper()
	var out bytes.Buffer
	err := diagnosis.Report(t.Context(), elsewhere(&out), &cli.Flags{From: name, Output: output, Timeout: time.Minute},
		diagnosis.Request{Command: "node"}, render.Node)
	if err != nil && err.Error() != "" {
		t.Fatal(err)
	}
	return out.String()
}

// TestFromGivesTheSameVerdict packs the facts of every recorded case and judges them out of the bundle.
func TestFromGivesTheSameVerdict(t *testing.T) {
	cases, _ := filepath.Glob("../../../checks/*/testdata/*/facts.json")
	if len(cases) < 30 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, file := range cases {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			var in facts.Input
			must(t, json.Unmarshal(text, &in))
			want := judge.NewReport(checks.Header{}, &in)
			for _, level := range []redact.Level{redact.Standard, redact.Strict} {
				name := pack(t, level, append(collect.Names(&in), "node-7"), map[string]string{bundle.FactsName: string(text)})
				var got checks.Report
				must(t, json.Unmarshal([]byte(from(t, name, "json")), &got))
				if diff := cmp.Diff(essence(want), essence(&got)); diff != "" {
					t.Errorf("%s: %s", level, diff)
				}
				if (got.Host == "node-7") != (level == redact.Standard) || !got.GeneratedAt.Equal(in.Now.Truncate(time.Second)) ||
					!strings.HasPrefix(got.Notes[0], "captured 2026-03-14T03:09:26Z in x.tar.zst") {
					t.Error(got.Header, got.Notes)
				}
			}
		})
	}
}

// TestFromLogs reads the log of a real kubelet whose containerd was frozen, as it is and out of bundles.
func TestFromLogs(t *testing.T) {
	packed, err := os.Open("../../../journal/testdata/real/kubelet-1.36-containerd-frozen.log.zst")
	must(t, err)
	defer packed.Close()
	d, err := zstd.NewReader(packed)
	must(t, err)
	defer d.Close()
	text, err := io.ReadAll(d)
	must(t, err)
	episodes := func(inputs []journal.Input) []string {
		r, err := journal.Read(t.Context(), journal.Options{Inputs: inputs, Year: 2026, Local: time.UTC})
		must(t, err)
		var all []string
		for _, e := range r.Episodes {
			all = append(all, fmt.Sprint(e.Kind, e.Start, e.End, e.Lines, e.MaxLastSeenSeconds, e.Recovered))
		}
		return all
	}
	want := episodes([]journal.Input{{Kind: journal.Stream, Path: "kubelet.log", Reader: bytes.NewReader(text)}})
	for _, level := range []redact.Level{redact.Standard, redact.Strict} {
		s := open(t, pack(t, level, nil, map[string]string{"logs/kubelet.log": string(text)}))
		logs, err := s.Logs()
		must(t, err)
		if diff := cmp.Diff(want, episodes(logs)); diff != "" || len(want) < 2 {
			t.Errorf("%s: %s", level, diff)
		}
	}
}

// beside has a goroutine that waits for a lock, and one that waits for the disk, without times.
const beside = `goroutine 7 [semacquire]:
sync.(*Mutex).lockSlow(0xc0000010b8)
	mutex.go:1
go.etcd.io/bbolt.(*DB).beginRWTx(0xc000001000)
	db.go:1
main.main()
	main.go:1

goroutine 8 [syscall]:
syscall.Fdatasync(0x3)
	syscall.go:1
go.etcd.io/bbolt.(*DB).Update(0xc000001000)
	db.go:2
main.f()
	main.go:1
`

// TestFromStacks reads the dumps of a bundle. Without an earlier dump of the process nothing shows that a goroutine
// stands still in a wait for the disk.
func TestFromStacks(t *testing.T) {
	for _, before := range []map[string]string{{}, {"stacks/runtime-9-before.txt": beside}} {
		files := map[string]string{
			bundle.SourcesName: `{"runtime-9.txt": {"pid": 9, "role": "runtime"},
				"runtime-9-before.txt": {"pid": 9, "role": "runtime"}}`,
			"stacks/runtime-9.txt": beside,
		}
		maps.Copy(files, before)
		all, err := open(t, pack(t, redact.Standard, nil, files)).Dumps(t.Context())
		must(t, err)
		if r := all.Report(t.Context()); len(r.Holders) != len(before) {
			t.Errorf("holders %+v of %+v, want %d", r.Holders, r.Sources, len(before))
		}
	}
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
		var out bytes.Buffer
		flags := &cli.Flags{From: pack(t, redact.Standard, nil, map[string]string{bundle.FactsName: text}), Output: "text"}
		flags.Timeout = time.Minute
		err := diagnosis.Report(t.Context(), elsewhere(&out), flags, diagnosis.Request{}, render.Node)
		if code, _, _ := cli.ExitCode(err); code != cli.ExitUnknown || out.Len() == 0 && err.Error() == "" {
			t.Errorf("%s: exit code %d, %v\n%s", text, code, err, out.String())
		}
	}
}

// TestFromReport shows the report of the node where its facts are not whole, without the commands in it.
func TestFromReport(t *testing.T) {
	const report = `{"kind": "Report", "status": "unhealthy", "host": "node-7", "causes": [{"code": "RuntimeHung",
		"summary": "it hangs", "nextSteps": [{"why": "x", "command": "reboot"}]}], "nextSteps": [{"command": "reboot"}]}`
	name := pack(t, redact.Standard, nil, map[string]string{bundle.FactsName: `{"Now": `, bundle.ReportName: report})
	if text := from(t, name, "text"); strings.Contains(text, "reboot") || !strings.Contains(text, "node-7  RuntimeHung") ||
		!strings.Contains(text, "facts.json: it is cut off") || !strings.Contains(text, "as it was reported there") {
		t.Error(text)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMonitorAsMeasure has the judge find the same in each scenario of the embedded runtime whether a one-shot command
// measures it, or a service looks at it: closely for the first time, again while calls hang, and then as usual.
func TestMonitorAsMeasure(t *testing.T) {
	const endpoint = "unix:///run/test.sock"
	for _, s := range fake.Builtins() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				state := crictl.ConnectOK
				if s.Socket == fake.SocketRefuse {
					state = crictl.ConnectRefused
				}
				probe := func(context.Context, string) crictl.Connect { return crictl.Connect{State: state} }
				dialer := faketest.Serve(t, s)
				dial := func() *crictl.Client {
					c, err := crictl.Dial(endpoint, crictl.Options{Dialer: dialer})
					must(t, err)
					t.Cleanup(func() { _ = c.Close() })
					return c
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				want := verdict(plegbench.Measure(ctx, endpoint, dial(), plegbench.Options{Probe: probe}))
				m := plegbench.NewMonitor(endpoint, dial(), plegbench.MonitorOptions{
					Interval: 30 * time.Second, Sweep: 5 * time.Minute, Probe: probe,
				})
				defer m.Close()
				looks := 4
				switch s.Name {
				case "flapping":
					looks = 1 // it depends on the moment
				case "exited-flood":
					looks = 2 // 20,000 containers take long
				}
				for i := range looks {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					if diff := cmp.Diff(want, verdict(m.Poll(ctx, i < 2))); diff != "" {
						t.Errorf("look %d: %s", i, diff)
					}
					cancel()
					time.Sleep(5 * time.Second)
				}
			})
		})
	}
}

// verdict is what the judge finds, with the culprits.
func verdict(m *plegbench.Measurement) []string {
	in := &facts.Input{
		Now: m.Ended, Measurement: m, Summary: plegbench.Summarize(m, nil), HostMissing: "the runtime is simulated",
		Runtime: checks.Runtime{Endpoint: "unix:///run/test.sock", EndpointSource: string(crictl.SourceSimulated)},
	}
	r := judge.NewReport(checks.Header{}, in)
	found := []string{string(r.Status)}
	for _, c := range r.Causes {
		line := []string{c.Code, string(c.Severity)}
		if s := c.Subject; s != nil {
			line = append(line, s.Kind, s.Namespace, s.Pod, s.Name)
		}
		found = append(found, strings.Join(line, " "))
	}
	return found
}
