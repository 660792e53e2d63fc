package stacks

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/journal/textlog"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// realDump returns the dump of a containerd 1.6.20 in which eleven calls wait for the lock of a container.
func realDump(t testing.TB) string {
	t.Helper()
	packed, err := os.ReadFile("testdata/dumps/update-stopped-shim-1.6.txt.zst")
	must(t, err)
	r, _, err := textlog.Unpack(bytes.NewReader(packed))
	must(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	must(t, err)
	return string(b)
}

func readAll(t testing.TB, name, text string) []*Dump {
	t.Helper()
	dumps, err := Read(t.Context(), name, strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return dumps
}

func quoteJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

const (
	stamp = "2026-11-23T03:17:45.561967Z"
	short = "Nov 23 03:17:45 node-1 containerd[812]: "
	// foreign is a line of another sender.
	foreign = "Nov 23 03:17:45 node-1 kubelet[99]: I1123 03:17:45.000000 99 kubelet.go:1] \"goroutine (x)\" f(x)\n"
	end     = "\n=== END goroutine stack dump ==="
)

// logrus returns a dump as containerd logs it.
func logrus(dump string) string {
	return `time="` + stamp + `" level=info msg=` + strconv.Quote("=== BEGIN goroutine stack dump ===\n"+dump+end)
}

// An entry returns a line, or a piece of one, as a log has it.
type entry func(s string) string

func prefixed(prefix string) entry {
	return func(s string) string { return prefix + s + "\n" }
}

func journalJSON(s string) string {
	return `{"__CURSOR":"s=1","__REALTIME_TIMESTAMP":"1795403865561967","SYSLOG_IDENTIFIER":"containerd","MESSAGE":` +
		quoteJSON(s) + `,"_PID":"812","PRIORITY":"6"}` + "\n"
}

func exported(s string) string {
	return "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1795403865561967\nPRIORITY=6\nMESSAGE=" + s +
		"\nSYSLOG_IDENTIFIER=containerd\n_PID=812\n_TRANSPORT=stdout\n\n"
}

func docker(s string) string {
	return `{"log":` + quoteJSON(s) + `,"stream":"stderr","time":"` + stamp + `"}` + "\n"
}

// each returns the lines of text as entries, with entries of other senders between them. Empty lines are left out, as
// the journal does.
func each(text string, e entry) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if line != "" {
			b.WriteString(e(line))
		}
		if i%7 == 0 {
			b.WriteString(other(e))
		}
	}
	return b.String()
}

// other returns an entry of another sender; nothing if entries do not state theirs.
func other(e entry) string {
	s := e("goroutine created by f(x)")
	if changed := strings.NewReplacer("812", "99", "stderr", "stdout").Replace(s); changed != s {
		return changed
	}
	return ""
}

// split returns a record as a log splits it at n bytes, with entries of other senders between the pieces. Journald
// removes a blank at the end of a piece.
func split(record string, n int, e entry) string {
	var b strings.Builder
	for ; len(record) > n; record = record[n:] {
		piece := record[:n]
		if n == lineMax {
			piece = strings.TrimSuffix(piece, " ")
		}
		b.WriteString(e(piece) + other(e))
	}
	return b.String() + e(record)
}

// wrappings returns a dump as it stands in logs, and which of pid and time each states: i, t.
func wrappings(dump string) map[string][2]string {
	logrus := logrus(dump)
	logrusJSON := `{"level":"info","msg":` + quoteJSON("=== BEGIN goroutine stack dump ===\n"+dump+end) +
		`,"time":"` + stamp + `"}`
	record := "time=\"2026-11-23T03:17:46Z\" level=info msg=\"StopContainer for \\\"x\\\" (y)\"\n"
	line := func(s string) string { return docker(s + "\n") }
	return map[string][2]string{
		"bare":            {dump, ""},
		"crash":           {"SIGQUIT: quit\nPC=0x1 m=0 sigcode=0\n\n" + dump + "\nrax 0x1\n", ""},
		"logrus":          {record + logrus + "\n" + record, "t"},
		"logrus JSON":     {logrusJSON + "\n", "t"},
		"short":           {each(dump, prefixed(short)), "i"},
		"short, logrus":   {split(logrus, lineMax, prefixed(short)), "it"},
		"export, logrus":  {split(logrus, lineMax, exported), "it"},
		"JSON, logrus":    {split(logrus, lineMax, journalJSON), "it"},
		"rsyslog, logrus": {split(logrus, 8096, prefixed(short)), "it"},
		"CRI, logrus":     {split(logrus, 16<<10, prefixed(stamp+" stderr P ")), "t"},
		"docker":          {each(dump, line), "t"},
	}
}

func TestReadWrappings(t *testing.T) {
	text := realDump(t)
	want := readAll(t, "x", text)[0]
	if n := strings.Count("\n"+text, "\ngoroutine "); len(want.Goroutines) != n || n < 100 {
		t.Fatalf("got %d goroutines of %d", len(want.Goroutines), n)
	}
	for name, w := range wrappings(text) {
		t.Run(name, func(t *testing.T) {
			got := readAll(t, "x", w[0])
			if len(got) != 1 {
				t.Fatalf("got %d dumps, first %+v", len(got), got[0].Source)
			}
			if diff := differ(want.Goroutines, got[0].Goroutines); diff != "" {
				t.Error(diff)
			}
			source := checks.StackSource{
				Name: "x", Process: "containerd", Role: "runtime", Goroutines: len(want.Goroutines),
			}
			if strings.Contains(w[1], "i") {
				source.PID = 812
			}
			at := got[0].Source.CapturedAt
			if strings.Contains(w[1], "t") != (at != nil && at.UnixMicro() == 1795403865561967) {
				t.Errorf("captured at %v", at)
			}
			got[0].Source.CapturedAt = nil
			if diff := cmp.Diff(source, got[0].Source); diff != "" {
				t.Error(diff)
			}
		})
	}
}
