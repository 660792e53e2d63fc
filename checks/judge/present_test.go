package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/journal"
)

// TestPresent judges a node by its log at several moments of a fault: the words are those of the moment, and the node
// is healthy within five seconds of NodeReady.
func TestPresent(t *testing.T) {
	golden(t, "testdata/present.txtar", func(t *testing.T, lines string) (found string) {
		moments, log, _ := strings.Cut(lines, "\nNov ")
		for at := range strings.FieldsSeq(strings.ReplaceAll(moments, "at ", "")) {
			now, err := time.Parse(time.DateTime, "2026-11-22 "+at)
			must(t, err)
			var until strings.Builder
			for line := range strings.Lines("Nov " + log) {
				if line[len("Nov 22 "):][:len(at)] <= at {
					until.WriteString(line)
				}
			}
			in := node(t, "")
			in.Now = now
			in.Journal, err = journal.Read(t.Context(), journal.Options{
				Inputs: []journal.Input{{Kind: journal.Stream, Reader: strings.NewReader(until.String())}},
				Now:    func() time.Time { return now }, Local: time.UTC,
			})
			must(t, err)
			r := NewReport(checks.Header{}, in)
			found += fmt.Sprintf("> %s %s\n", at, finds(r))
			for _, c := range r.Causes {
				found += "> " + c.Summary + "\n"
			}
		}
		return found
	})
}
