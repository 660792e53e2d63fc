package journalcmd_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/kdiag/kdiag/cmd/internal/apptest"
	"github.com/kdiag/kdiag/journal"
)

// TestJournalOfRealLogs runs the command over excerpts of real logs: whatever is in one, the exit code, the line, the
// text and the document agree, and nothing in them acts on a terminal. What is found is tested in package journal.
func TestJournalOfRealLogs(t *testing.T) {
	files, err := filepath.Glob("../../../journal/testdata/corpus/*.log")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d excerpts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			doc := apptest.Kdiag(t.Context(), "journal", "-o", "json", file)
			var r journal.Report
			if err := json.Unmarshal([]byte(doc.Stdout), &r); err != nil {
				t.Fatalf("no document: %v\n%s%s", err, doc.Stdout, doc.Stderr)
			}
			want, word := 0, "NOTHING FOUND"
			for _, e := range r.Incidents() {
				if want = 1; !e.Recovered {
					word = "UNHEALTHY"
				} else if word != "UNHEALTHY" {
					word = "RECOVERED"
				}
			}
			line := apptest.Kdiag(t.Context(), "journal", "-o", "brief", file)
			broken := "NO PLEG INCIDENT, but"
			if want == 0 && len(r.Findings) > 0 {
				word = broken // another problem is reported instead
			}
			text := apptest.Kdiag(t.Context(), "journal", file)
			html := filepath.Join(t.TempDir(), "page.html")
			page := apptest.Kdiag(t.Context(), "journal", "-o", "yaml", "--html", html, file)
			for format, o := range map[string]apptest.Outcome{"json": doc, "brief": line, "text": text, "page": page} {
				if o.Code != want {
					t.Errorf("%s: exit code %d, want %d\n%s%s", format, o.Code, want, o.Stdout, o.Stderr)
				}
				if strings.ContainsFunc(o.Stdout, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
					t.Errorf("%s: a character that acts on a terminal: %q", format, o.Stdout)
				}
			}
			if !strings.HasPrefix(line.Stdout, word) || len(line.Stdout) > 81 || strings.Count(line.Stdout, "\n") != 1 {
				t.Errorf("brief: %q, want one line that begins with %s", line.Stdout, word)
			}
			if !strings.HasPrefix(text.Stdout, word) {
				t.Errorf("text begins %.40q, want %s", text.Stdout, word)
			}
		})
	}
}
