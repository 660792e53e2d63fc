package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/journal"
)

// TestPresent judges a node by its log at several moments of a fault: the words are those of the moment, and the node
// is healthy within five seconds of NodeReady.
func TestPresent(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/present.txtar")
	if err != nil {
		t.Fatal(err)
	}
	logs := map[string]string{}
	for _, f := range archive.Files {
		logs[f.Name] = string(f.Data)
	}
	for _, tt := range []struct{ log, at, code, words string }{
		{"node deleted", "09:13:20", "APIServerUnreachable", "no Node object for this node"},
		{"node deleted", "09:13:52", "", ""},
		{"webhook", "09:27:05", "APIServerUnreachable", "the admission webhook bad.example.com fails"},
		{"API server away", "09:54:30", "APIServerUnreachable", "connection refused"},
		{"API server away", "09:55:42", "", ""},
		{"configuration", "09:15:14", "KubeletCrashLooping", "did not find expected ',' or ']'"},
		{"configuration", "09:16:04", "KubeletCrashLooping", "quantities must match"},
		{"configuration", "09:16:50", "KubeletCrashLooping", "unknown flag: --no-such-flag"},
		{"cgroup driver", "09:19:35", "CgroupDriverMismatch", "no new pod starts"},
		{"cgroup driver", "09:21:30", "", ""},
		{"containerd stopped", "09:58:55", "PLEGUnhealthy", "PLEG is not healthy since 09:58:48"},
		{"containerd stopped", "09:59:16", "", ""},
	} {
		t.Run(tt.log+" "+tt.at, func(t *testing.T) {
			now, err := time.Parse(time.DateTime, "2026-11-22 "+tt.at)
			if err != nil {
				t.Fatal(err)
			}
			var until strings.Builder
			for line := range strings.Lines(logs[tt.log]) {
				if line[len("Nov 22 "):][:len(tt.at)] <= tt.at {
					until.WriteString(line)
				}
			}
			in := node(t, "")
			in.Now = now
			in.Journal, err = journal.Read(t.Context(), journal.Options{
				Inputs: []journal.Input{{Kind: journal.Stream, Reader: strings.NewReader(until.String())}},
				Now:    func() time.Time { return now }, Local: time.UTC,
			})
			if err != nil {
				t.Fatal(err)
			}
			r := NewReport(checks.Header{}, in)
			switch {
			case tt.code == "" && r.Status != checks.Healthy:
				t.Errorf("%s: %+v", r.Status, r.Causes)
			case tt.code != "" && (len(r.Causes) == 0 || r.Causes[0].Code != tt.code ||
				r.Causes[0].Severity != checks.Critical || !strings.Contains(r.Causes[0].Summary, tt.words)):
				t.Errorf("%s: %+v, want %s: %s", r.Status, r.Causes, tt.code, tt.words)
			}
		})
	}
}
