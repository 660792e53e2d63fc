package journal

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A kubelet that was stopped (SIGSTOP) for 4 min 34 s: it writes nothing, then one skip line with an age that a loop which runs reports 87 s
// earlier.
func TestStoppedKubelet(t *testing.T) {
	r := readFile(t, "testdata/kubelet/stopped.log")
	if len(r.Episodes) != 2 || r.Episodes[1].Kind != Incident || !r.Episodes[1].Recovered {
		t.Fatalf("want a start and an incident that ended%s", brief(r))
	}
	first := r.Episodes[1].Causes[0]
	if first.Code != "KubeletStalled" || first.Confidence < 0.7 || !strings.Contains(first.Summary, "for 82 s or more") {
		t.Errorf("first is %+v", first)
	}
	if c, ok := cause(r, "RuntimeHung"); ok {
		t.Errorf("nobody asked the runtime: %+v", c)
	}
	if r.Failing != nil {
		t.Errorf("nothing fails at the end: %+v", r.Failing)
	}
}

// A first record that comes late tells of a loop that stood still only if it is the loop's first, and nothing else says what it waited for.
func TestStandstill(t *testing.T) {
	skip := func(anchor, age float64, beside string) string {
		text := fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is 3m0s", time.Duration(age*float64(time.Second)))
		return fmt.Sprintf(`%.3f "Skipping pod synchronization" err="[%s%s]"`, anchor+age, beside, text)
	}
	const sync = ` "SyncLoop (PLEG): event for pod" pod="ns/p" event={"ID":"a","Type":"ContainerDied","Data":"b"}`
	const runtime = `1100@containerd level=info msg="starting containerd" revision="" version=1.6.20`
	const down = "container runtime is down, "
	tests := []struct {
		name     string
		messages []string
		stalled  bool
		first    string
	}{
		{"one record, and the loop works", []string{skip(1000, 260, down), "1260.3" + sync}, true, "KubeletStalled"},
		{"its back-off begins", []string{skip(1000, 260, down), skip(1000, 260.1, down), skip(1000, 260.3, down), "1261" + sync}, true, "KubeletStalled"},
		{"calls under way end with it", []string{`1260 "GenericPLEG: Unable to retrieve pods" ` + late, skip(1000, 260.001, down), "1260.3" + sync}, true, "KubeletStalled"},
		{"the rest of the node wrote", []string{runtime, skip(1000, 260, ""), "1260.3" + sync}, true, "KubeletStalled"},
		{"on time", []string{skip(1000, 184, down), "1184.3" + sync}, false, "RuntimeHung"},
		{"a busy pass", []string{skip(1000, 210, down), "1210.3" + sync}, false, "RuntimeHung"},
		{"the log begins in the middle", []string{skip(1000, 260, down), skip(1000, 265, down), skip(1000, 270, down), "1275" + sync}, false, "RuntimeHung"},
		{"a list hung meanwhile", []string{`1120 "GenericPLEG: Unable to retrieve pods" ` + late, skip(1000, 260, ""), "1260.3" + sync}, false, "ListHang"},
		{"the loop spoke of the runtime", []string{`1200 "Skipping pod synchronization" err="container runtime is down"`, skip(1000, 260, down), "1260.3" + sync}, false, "RuntimeHung"},
		{"the log ends with it", []string{skip(1000, 260, down)}, false, "RuntimeHung"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := report(t, tt.messages...)
			if len(r.Episodes) != 1 {
				t.Fatalf("want one episode%s", brief(r))
			}
			c, ok := cause(r, "KubeletStalled")
			if stalled := ok && strings.Contains(c.Summary, "stood still for"); stalled != tt.stalled || r.Episodes[0].Causes[0].Code != tt.first {
				t.Errorf("stood still: %v, want %v; first should be %s%s", stalled, tt.stalled, tt.first, brief(r))
			}
		})
	}
}
