package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// TestJournalFailing wants what fails at the end of the log in the headline, before an older incident that has ended, in every format.
func TestJournalFailing(t *testing.T) {
	at := func(clock string) *time.Time {
		v, err := time.Parse(time.DateTime, "2026-11-22 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return &v
	}
	failing := &journal.Episode{
		Kind: journal.Failing, Start: at("01:21:20"), End: at("01:23:23"), Seconds: 123, Lines: 147,
		Causes: []journal.Cause{{Code: "RuntimeUnsupported", Confidence: 0.85, Summary: "Something listens that does not speak CRI v1."}},
	}
	old := journal.Episode{Kind: journal.Incident, Start: at("01:03:56"), End: at("01:03:56"), Lines: 1, MaxLastSeenSeconds: 267, Recovered: true, RecoveredAt: at("01:03:56")}
	relists := []journal.Count{{Code: "RelistFailed", Title: "relist failed", Lane: "kubelet", Count: 147, First: at("01:21:20"), Last: at("01:23:23")}}
	loop := []journal.Count{{Code: "RuntimeIsDown", Title: "container runtime is down", Lane: "kubelet", Count: 147, First: at("01:21:20"), Last: at("01:23:23")}}
	report := func(signs []journal.Count, episodes ...journal.Episode) *journal.Report {
		return &journal.Report{Lines: 5000, From: at("00:58:08"), To: at("01:23:23"), Episodes: episodes, Signatures: signs, Failing: failing}
	}
	for _, tt := range []struct {
		name, brief string
		r           *journal.Report
		text        []string
	}{
		{
			"after an incident", "FAILING RuntimeUnsupported, since Nov 22 01:21:20Z, 1 incident before", report(relists, old),
			[]string{
				"FAILING  relists fail since 2026-11-22 01:21:20 UTC, until the log ends at 01:23:23", "Before that: PLEG was not healthy from 2026-11-22 01:03:56 UTC",
				"Very likely RuntimeUnsupported: Something listens", "Failing  at the end of the log  01:21:20 to 01:23:23, 2m03s, 147 records", "kdiag explain RuntimeUnsupported", "kdiag pleg",
			},
		},
		{"alone", "FAILING RuntimeUnsupported, since Nov 22 01:21:20Z", report(relists), []string{"FAILING  relists fail since"}},
		{"the loop", "FAILING RuntimeUnsupported, since Nov 22 01:21:20Z", report(loop), []string{"FAILING  the kubelet's loop does no work since"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var brief, text, html bytes.Buffer
			for o, w := range map[Format]*bytes.Buffer{Brief: &brief, Text: &text} {
				if err := JournalReport(w, tt.r, Options{Format: o, Width: 200}); err != nil {
					t.Fatal(err)
				}
			}
			if err := JournalHTML(&html, tt.r); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(brief.String()); got != tt.brief {
				t.Errorf("brief: %q, want %q", got, tt.brief)
			}
			flat := strings.Join(strings.Fields(text.String()), " ")
			for _, want := range tt.text {
				if !strings.Contains(flat, strings.Join(strings.Fields(want), " ")) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
			if !strings.Contains(html.String(), "FAILING") || !strings.Contains(html.String(), failingState) || strings.Contains(text.String(), "worst age  no record") {
				t.Errorf("the page:\n%.3000s\n%s", html.String(), text.String())
			}
		})
	}
}
