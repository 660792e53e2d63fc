package app_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

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
			doc := kdiag(t.Context(), "journal", "-o", "json", file)
			var r journal.Report
			if err := json.Unmarshal([]byte(doc.stdout), &r); err != nil {
				t.Fatalf("no document: %v\n%s%s", err, doc.stdout, doc.stderr)
			}
			want, word := 0, "NOTHING FOUND"
			for _, e := range r.Incidents() {
				if want = 1; !e.Recovered {
					word = "UNHEALTHY"
				} else if word != "UNHEALTHY" {
					word = "RECOVERED"
				}
			}
			line := kdiag(t.Context(), "journal", "-o", "brief", file)
			broken := "NO PLEG INCIDENT, but"
			if want == 0 && len(r.Findings) > 0 {
				word = broken // another problem is reported instead
			}
			text := kdiag(t.Context(), "journal", file)
			html := filepath.Join(t.TempDir(), "page.html")
			page := kdiag(t.Context(), "journal", "-o", "yaml", "--html", html, file)
			for format, o := range map[string]outcome{"json": doc, "brief": line, "text": text, "page": page} {
				if o.code != want {
					t.Errorf("%s: exit code %d, want %d\n%s%s", format, o.code, want, o.stdout, o.stderr)
				}
				if strings.ContainsFunc(o.stdout, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
					t.Errorf("%s: a character that acts on a terminal: %q", format, o.stdout)
				}
			}
			if !strings.HasPrefix(line.stdout, word) || len(line.stdout) > 81 || strings.Count(line.stdout, "\n") != 1 {
				t.Errorf("brief: %q, want one line that begins with %s", line.stdout, word)
			}
			if !strings.HasPrefix(text.stdout, word) {
				t.Errorf("text begins %.40q, want %s", text.stdout, word)
			}
		})
	}
}
