package judge

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/journal"
)

// TestIncidents judges the logs of testdata/incidents.txtar, which describes them, and compares what is found.
func TestIncidents(t *testing.T) {
	golden(t, "testdata/incidents.txtar", func(t *testing.T, lines string) string {
		return foundIn(t, readLog(t, lines))
	})
}

// foundIn writes what the judge found in a log.
func foundIn(t *testing.T, r *journal.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "> %s, %s\n", r.Verdict, r.Status)
	episodes := r.Episodes
	if r.Failing != nil {
		episodes = append(episodes, *r.Failing)
	}
	for _, e := range episodes {
		fmt.Fprintf(&b, "> %s", e.Kind)
		for i, c := range e.Causes {
			fmt.Fprintf(&b, "%c %s %.2f", ":,"[min(i, 1)], c.Code, c.Confidence)
			if len(c.Evidence.For) == 0 || c.Confidence < 0.05 || c.Confidence > 0.95 || c.Summary == "" {
				t.Errorf("%+v", c)
			}
		}
		for _, c := range e.Culprits {
			fmt.Fprintf(&b, "; %s %.12s", c.Kind, c.ID)
		}
		b.WriteByte('\n')
	}
	for i, f := range r.Findings {
		fmt.Fprintf(&b, "> %s, %s: %d from %s to %s", f.Code, f.Cause, f.Count, f.First.Format(time.TimeOnly),
			f.Last.Format(time.TimeOnly))
		if f.Ongoing {
			b.WriteString(", ongoing")
		}
		if _, names, _ := strings.Cut(f.Summary, ": "); names != "" {
			b.WriteString(": " + names)
		}
		if f.Words != "" {
			b.WriteString("; " + f.Words)
		}
		b.WriteByte('\n')
		if f.Summary == "" || !strings.Contains(r.Problems[i], f.Summary) {
			t.Errorf("finding %+v, problems %q", f, r.Problems)
		}
	}
	return b.String()
}

// readLog makes a log of the lines of a case, and judges it.
func readLog(t *testing.T, text string) *journal.Report {
	t.Helper()
	opts := journal.Options{
		Local: time.UTC, Now: func() time.Time { return time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC) },
	}
	var log strings.Builder
	for line := range strings.Lines(text) {
		var path, until string
		if n, _ := fmt.Sscanf(line, "file %s %s", &path, &until); n > 0 {
			opts.Inputs, opts.Year = []journal.Input{{Path: path}}, 2026
			opts.Until, _ = time.Parse(time.RFC3339, until)
			continue
		}
		writeLines(t, &log, strings.TrimSuffix(line, "\n"))
	}
	if opts.Inputs == nil {
		opts.Inputs = []journal.Input{{Kind: journal.Stream, Path: "-", Reader: strings.NewReader(log.String())}}
	}
	r, err := journal.Read(t.Context(), opts)
	must(t, err)
	Journal(r)
	return r
}

// writeLines writes the records that one line of a case stands for.
func writeLines(t *testing.T, log *strings.Builder, line string) {
	t.Helper()
	words := strings.NewReplacer(
		"LATE", `err="rpc error: code = DeadlineExceeded desc = context deadline exceeded"`,
		"REFUSED", `err="rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while `+
			`dialing: dial unix /run/containerd/containerd.sock: connect: connection refused\""`,
		"SYNC", `"SyncLoop UPDATE" source="api" pods=["ns/p"]`)
	record := func(at float64, sender, text string) {
		stamp := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).Add(time.Duration(at * float64(time.Second)))
		fmt.Fprintf(log, "%s n1 %s[1]: %s\n", stamp.Format("2006-01-02T15:04:05.000000-07:00"), sender,
			words.Replace(text))
	}
	skip := func(anchor, age float64, beside string) {
		text := fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is 3m0s",
			time.Duration(age*float64(time.Second)))
		if beside != "" {
			text = "[" + beside + ", " + text + "]"
		}
		record(anchor+age, "kubelet", fmt.Sprintf(`"Skipping pod synchronization" err="%s"`, text))
	}
	verb, rest, _ := strings.Cut(line, " ")
	args := bufio.NewReader(strings.NewReader(rest))
	var a, b float64
	switch verb {
	case "#":
	case "skip", "skips":
		_, err := fmt.Fscan(args, &a, &b)
		beside, _ := args.ReadString(0)
		beside = strings.TrimSpace(beside)
		must(t, err)
		if verb == "skip" {
			skip(a, b, beside)
			break
		}
		for k := range int(b) {
			skip(a, 183+5*float64(k), beside)
		}
	case "series": // as the sync loop writes them: 100 ms after the first, then with pauses up to five seconds
		at := 1000.0
		for {
			if _, err := fmt.Fscan(args, &a); err != nil {
				break
			}
			for age, pause := 180.2, 0.1; age < a; age += pause {
				if age > 180.2 {
					pause = min(2*pause, 5)
				}
				skip(at, age, "")
			}
			at += a + 1
		}
		record(at, "kubelet", "SYNC")
	case "frozen":
		for _, l := range []string{
			`1120 "GenericPLEG: Unable to retrieve pods" LATE`, `1121 "Container runtime sanity check failed" LATE`,
			`1241 "GenericPLEG: Unable to retrieve pods" LATE`, "skips 1000 60 container runtime is down",
		} {
			writeLines(t, log, l)
		}
	case "every":
		fmt.Fscan(args, &a, &b)
		text, _ := args.ReadString(0)
		at, text, _ := strings.Cut(strings.TrimSpace(text), " ")
		at, sender, _ := strings.Cut(at, "@")
		var from float64
		fmt.Sscan(at, &from)
		for k := range int(a) {
			writeLines(t, log, fmt.Sprintf("%f@%s %s", from+float64(k)*b, sender, text))
		}
	default:
		at, sender, _ := strings.Cut(verb, "@")
		if _, err := fmt.Sscan(at, &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if sender == "" {
			sender = "kubelet"
		}
		record(a, sender, rest)
	}
}

// TestLogVerdicts holds what the verdict on a log without incidents takes from what was read.
func TestLogVerdicts(t *testing.T) {
	denied := journal.Source{Name: "a", Problem: "permission denied"}
	for _, tt := range []struct {
		name    string
		r       journal.Report
		verdict string
		status  checks.Verdict
	}{
		{"nothing yet", journal.Report{Lines: 5, Partial: true}, checks.LogPartial, checks.Unknown},
		{"nothing read", journal.Report{Sources: []journal.Source{denied}}, checks.LogUnknown, checks.Unknown},
		{
			"one of two read, and it is empty",
			journal.Report{Sources: []journal.Source{{Name: "b"}, denied}},
			checks.LogClear, checks.Healthy,
		},
	} {
		if Journal(&tt.r); tt.r.Verdict != tt.verdict || tt.r.Status != string(tt.status) {
			t.Errorf("%s: %s, %s; want %s, %s", tt.name, tt.r.Verdict, tt.r.Status, tt.verdict, tt.status)
		}
	}
}
