package journalcmd_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/journal"
)

// corpus is a folder of excerpts of real logs, and index.tsv in it what is true of each.
const corpus = "../../../journal/testdata/corpus"

// plegRecords returns how many records of each excerpt say that PLEG is not healthy.
func plegRecords(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join(corpus, "index.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	truth := map[string]string{}
	column := -1
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		if column < 0 {
			for i, name := range fields {
				if name == "pleg_lines" {
					column = i
				}
			}
			continue
		}
		truth[fields[0]] = fields[column]
	}
	if len(truth) == 0 {
		t.Fatal("the index is empty")
	}
	return truth
}

// TestJournalOfRealLogs runs the command over every excerpt: whatever is in it, the exit code, the line, the text and the
// document agree, and nothing in them acts on a terminal. What is found is tested in package journal.
func TestJournalOfRealLogs(t *testing.T) {
	for name, records := range plegRecords(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(corpus, name)
			doc := apptest.Kdiag(t.Context(), "journal", "-o", "json", file)
			var r journal.Report
			if err := json.Unmarshal([]byte(doc.Stdout), &r); err != nil {
				t.Fatalf("no document: %v\n%s%s", err, doc.Stdout, doc.Stderr)
			}
			want, word := 0, "NOTHING FOUND"
			for _, e := range incidents(&r) {
				if want = 1; !e.Recovered {
					word = "UNHEALTHY"
				} else if word != "UNHEALTHY" {
					word = "RECOVERED"
				}
			}
			if records == "0" && len(r.Episodes) > 0 {
				t.Errorf("%d episodes without a record", len(r.Episodes))
			}
			line := apptest.Kdiag(t.Context(), "journal", "-o", "brief", file)
			if broken := "NO PLEG INCIDENT, but"; want == 0 && len(r.Signatures) > 0 && strings.HasPrefix(line.Stdout, broken) {
				word = broken // another trouble is told instead
			}
			text := apptest.Kdiag(t.Context(), "journal", file)
			page := filepath.Join(t.TempDir(), "page.html")
			withPage := apptest.Kdiag(t.Context(), "journal", "-o", "yaml", "--html", page, file)
			for format, o := range map[string]apptest.Outcome{"json": doc, "brief": line, "text": text, "yaml": withPage} {
				if o.Code != want {
					t.Errorf("%s: exit code %d, want %d\n%s%s", format, o.Code, want, o.Stdout, o.Stderr)
				}
				for _, r := range o.Stdout {
					if r != '\n' && !unicode.IsPrint(r) {
						t.Errorf("%s: %U acts on a terminal", format, r)
						break
					}
				}
			}
			if !strings.HasPrefix(line.Stdout, word) || len(line.Stdout) > 81 || strings.Count(line.Stdout, "\n") != 1 {
				t.Errorf("brief: %q, want one line that begins with %s", line.Stdout, word)
			}
			if !strings.HasPrefix(text.Stdout, word) {
				t.Errorf("text begins %.40q, want %s", text.Stdout, word)
			}
			if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "</html>") {
				t.Errorf("the page: %v, %d bytes", err, len(html))
			}
		})
	}
}
