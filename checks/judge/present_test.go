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
			in := node()
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

// TestKubeletWords checks what the sentences on a kubelet name.
func TestKubeletWords(t *testing.T) {
	defined := map[string]string{}
	scenarioFiles(t, defined)
	for name, tt := range map[string]struct{ lines, words string }{
		"port 10250 held by another process": {
			`kubelet
			journal of 9 UnitRestarted 1m29s 1s kubelet.service: Scheduled restart job. | kubelet.service
			journal of 9 KubeletFatal 1m29s 1s "Failed to listen and serve" err="listen tcp 0.0.0.0:10250: bind: in use"
			Health.Holders = [{"Address":"0.0.0.0:10250","Name":"python3","PID":77}]`,
			"bind: in use; python3 (pid 77) listens at 0.0.0.0:10250, not the kubelet",
		},
		"killed for memory, and broken since": {
			`kubelet
			journal of 9 UnitRestarted 1m29s 1s kubelet.service: Scheduled restart job. | kubelet.service
			journal of 1 OOMKill 9m 9m Out of memory: Killed process 812 (kubelet) | kubelet
			journal of 9 KubeletFatal 1m29s 1s "command failed" err="failed to parse kubelet flag: unknown flag: --x"`,
			"it exits with: failed to parse kubelet flag",
		},
		"memory below the threshold": {
			`kubelet
			Settings.EvictionHard = {"memory.available":"40%"}
			Memory.Available = 9663676416
			journal of 3 EvictionPressure 3m 1m evicted | web/checkout-1 | web/checkout-2`,
			"less than the kubelet's eviction threshold of 40%; the kubelet evicts pods, last at 03:08:24",
		},
		"403 of the kubelet's server": {
			`kubelet
			Health.SyncLoop = {"URL":"https://127.0.0.1:10250/healthz/syncloop","Status":403,"Denied":true}
			Health.Value.Missing = "the kubelet's server refuses the node certificate (403)"`,
			"(403): use --kubelet-token FILE",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReport(checks.Header{}, node(changes(t, defined, tt.lines)))
			all := ""
			for _, c := range r.Causes {
				all += c.Summary + "\n"
			}
			for _, c := range r.Checks {
				all += c.Summary + "\n"
			}
			if !strings.Contains(all, tt.words) {
				t.Errorf("%q is not in\n%s", tt.words, all)
			}
		})
	}
}
