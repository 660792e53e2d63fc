package journal

import (
	"strings"
	"testing"
)

// Without a call on record that failed, a log tells little of a runtime: which words are right?
func TestRuntimeWithoutCalls(t *testing.T) {
	const notReady = "container runtime not ready: RuntimeReady=false reason:ContainerdNotReady message:snapshotter not loaded"
	const failed = "1000@systemd containerd.service: Main process exited, code=exited, status=2/INVALIDARGUMENT"
	down := skips(1000, 20, "container runtime is down")
	tests := []struct {
		name     string
		messages []string
		code     string
		min, max float64
		not      string
	}{
		{"its unit failed", append([]string{failed}, down...), "RuntimeDown", 0.65, 0.75, "RuntimeHung"},
		{"another unit failed", append([]string{strings.Replace(failed, "containerd.service", "kubelet.service", 1)}, down...), "RuntimeHung", 0.05, 0.45, "RuntimeDown"},
		{"its unit failed and was started again", append([]string{failed, "1005@systemd Started containerd container runtime."}, down...), "RuntimeDown", 0.5, 0.6, ""},
		{"its unit failed long after", append([]string{strings.Replace(failed, "1000@", "1200@", 1)}, down...), "RuntimeDown", 0.05, 0.5, ""},
		{"it says that it is not ready", skips(1000, 20, "container runtime is down, "+notReady), "RuntimeNotReady", 0.65, 0.75, "RuntimeHung"},
		{"the kubelet calls it down", down, "RuntimeHung", 0.05, 0.45, "PLEGUnhealthy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := report(t, tt.messages...)
			first := r.Episodes[0].Causes[0]
			if first.Code != tt.code || first.Confidence < tt.min || first.Confidence > tt.max {
				t.Errorf("first is %s %.2f, want %s %.2f to %.2f%s", first.Code, first.Confidence, tt.code, tt.min, tt.max, brief(r))
			}
			if c, ok := cause(r, tt.not); ok {
				t.Errorf("%s is told too: %+v", tt.not, c)
			}
			if strings.Contains(first.Summary, "accepts calls") {
				t.Errorf("the log does not show that it accepts calls: %s", first.Summary)
			}
		})
	}
}

// One call that is refused, or late, writes several records.
func TestRecordsAreNotCalls(t *testing.T) {
	const refused = `err="rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused\""`
	r := report(t, append([]string{
		`1001 "ListPodSandbox with filter from runtime service failed" ` + refused,
		`1001.001 "GenericPLEG: Unable to retrieve pods" ` + refused,
	}, skips(1000, 3, "container runtime is down")...)...)
	c, _ := cause(r, "RuntimeDown")
	text := strings.Join(c.Evidence.For, "\n")
	if !strings.Contains(text, "refused calls: 2 records") || strings.Contains(text, "times") || strings.Contains(text, "no connection to the runtime") {
		t.Errorf("evidence:\n%s", text)
	}
	r = report(t, skips(1000, 17, "")...)
	c, _ = cause(r, "PLEGUnhealthy")
	if got, want := strings.Join(c.Evidence.For, "\n"), "17 records, no failing call among them"; got != want {
		t.Errorf("evidence %q, want %q", got, want)
	}
}

func TestListHangEnds(t *testing.T) {
	const list = ` "ListContainers with filter from runtime service failed" ` + late
	const sync = `%s "SyncLoop UPDATE" source="api" pods=["ns/p"]`
	tests := []struct {
		name     string
		messages []string
		past     bool
		min, max float64
	}{
		{"goes on", append([]string{"1120" + list}, skips(1000, 3, "")...), false, 0.75, 0.75},
		{"once, then back", append(append([]string{"1120" + list}, skips(1000, 3, "")...), strings.Replace(sync, "%s", "1200", 1)), true, 0.05, 0.45},
		{"once in relists that end", append(append([]string{"1120" + list}, skips(1000, 3, "")...), skips(1020, 3, "")...), true, 0.05, 0.45},
		{"again and again, then back", append(append([]string{"1120" + list, "1241" + list}, skips(1000, 14, "")...), strings.Replace(sync, "%s", "1260", 1)), true, 0.75, 0.75},
	}
	for _, tt := range tests {
		c, _ := cause(report(t, tt.messages...), "ListHang")
		if c.Confidence < tt.min || c.Confidence > tt.max || tt.past == strings.Contains(c.Summary, "do not come back") {
			t.Errorf("%s: %.2f, %q", tt.name, c.Confidence, c.Summary)
		}
	}
}
