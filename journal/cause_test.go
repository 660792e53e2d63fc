package journal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
)

// report judges messages that stand at seconds after zero, written "seconds message" or "seconds@sender message", in the
// order given.
func report(t *testing.T, messages ...string) *Report {
	t.Helper()
	p := &pool{}
	pt := &part{store: newStore(), source: Source{Name: "test"}, hint: calendarHint{loc: time.UTC, notAfter: now()}}
	c := newCollector(p, newMatchers(), pt, nil, nil)
	for _, m := range messages {
		sec, text, _ := strings.Cut(m, " ")
		sec, sender, _ := strings.Cut(sec, "@")
		d, err := time.ParseDuration(sec + "s")
		if err != nil {
			t.Fatal(err)
		}
		s := klog.Stamp{Micros: zero + d.Microseconds(), Known: true, Year: true, Zone: true}
		c.take(&record{msg: []byte(text), inner: s, outer: s, pid: 1, host: "n1", senders: []string{sender}})
	}
	return assemble([]*part{pt}, p, &Options{Now: now, Local: time.UTC}, false)
}

// skips are n skip lines, five seconds apart, of a stall that began at an anchor; beside is what else they list.
func skips(anchor float64, n int, beside string) []string {
	var out []string
	for k := range n {
		age := time.Duration((183 + 5*float64(k)) * float64(time.Second))
		text := fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is 3m0s", age)
		if beside != "" {
			text = "[" + beside + ", " + text + "]"
		}
		out = append(out, fmt.Sprintf(`%.3f "Skipping pod synchronization" err="%s"`, anchor+age.Seconds(), text))
	}
	return out
}

const late = `err="rpc error: code = DeadlineExceeded desc = context deadline exceeded"`

func TestCauses(t *testing.T) {
	tests := []struct {
		name     string
		messages []string
		first    string // the most likely cause
		also     string // another that must be there, if set
		not      string // one that must not be likely
	}{
		{
			name: "a frozen runtime",
			messages: append([]string{
				`1120 "GenericPLEG: Unable to retrieve pods" ` + late,
				`1121 "Container runtime sanity check failed" ` + late,
			}, skips(1000, 30, "container runtime is down")...),
			first: "RuntimeHung", not: "ListHang",
		},
		{
			name: "a dead runtime",
			messages: append([]string{
				`1001 "GenericPLEG: Unable to retrieve pods" err="rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused\""`,
			}, skips(1000, 10, "container runtime is down")...),
			first: "RuntimeDown", not: "RuntimeHung",
		},
		{
			name: "only the lists hang",
			messages: append([]string{
				`1120 "ListContainers with filter from runtime service failed" ` + late + ` filter="&ContainerFilter{}"`,
				`1120.1 "GenericPLEG: Unable to retrieve pods" ` + late,
			}, skips(1000, 10, "")...),
			first: "ListHang", not: "RuntimeHung",
		},
		{
			name: "a container that cannot be inspected",
			messages: append(skips(1000, 11, ""),
				`1241 "ContainerStatus from runtime service failed" `+late+` containerID="bdf4dc0af526a317e248c994719eabb233a9db337d535351a277b1b324cf5fec"`),
			first: "InspectHang", not: "ListHang",
		},
		{
			name: "an answer that is too large",
			messages: append([]string{
				`1001 "GenericPLEG: Unable to retrieve pods" err="rpc error: code = ResourceExhausted desc = grpc: trying to send message larger than max (16785410 vs. 16777216)"`,
			}, skips(1000, 10, "")...),
			first: "ListTooLarge",
		},
		{
			name: "a hung task in the kernel goes before the hung runtime",
			messages: append([]string{
				"1125 INFO: task containerd:987 blocked for more than 120 seconds.",
				`1120 "GenericPLEG: Unable to retrieve pods" ` + late,
			}, skips(1000, 10, "container runtime is down")...),
			first: "KernelHung", also: "RuntimeHung",
		},
		{
			name: "a dead file server goes before what waits for it",
			messages: append([]string{
				"1010 nfs: server 10.36.3.5 not responding, still trying",
				`1120 "GenericPLEG: Unable to retrieve pods" ` + late,
			}, skips(1000, 10, "")...),
			first: "FilesystemHung", also: "ListHang",
		},
		{
			name: "a hung task long after PLEG had gone bad is no root",
			messages: append([]string{
				`1120 "GenericPLEG: Unable to retrieve pods" ` + late,
			}, append(skips(1000, 60, "container runtime is down"), "1470 INFO: task nginx:987 blocked for more than 120 seconds.")...),
			first: "RuntimeHung", also: "KernelHung", not: "KernelHung",
		},
		{name: "nothing but skip lines", messages: skips(1000, 10, ""), first: "PLEGUnhealthy", not: "RuntimeHung"},
		{
			name:     "skip lines that name the runtime as down, and nothing else",
			messages: skips(1000, 10, "container runtime is down"), first: "RuntimeHung", not: "PLEGUnhealthy",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := report(t, tt.messages...)
			if len(r.Episodes) != 1 {
				t.Fatalf("%d episodes, want 1", len(r.Episodes))
			}
			causes := r.Episodes[0].Causes
			if causes[0].Code != tt.first {
				t.Errorf("first is %s, want %s%s", causes[0].Code, tt.first, brief(r))
			}
			for _, c := range causes {
				if c.Code == tt.not && c.Confidence >= rootFrom {
					t.Errorf("%s has confidence %.2f%s", c.Code, c.Confidence, brief(r))
				}
				if len(c.Evidence.For) == 0 || c.Confidence <= 0 || c.Confidence > 0.95 || c.Summary == "" {
					t.Errorf("%+v", c)
				}
			}
			if tt.also != "" && !slices.ContainsFunc(causes, func(c Cause) bool { return c.Code == tt.also }) {
				t.Errorf("%s is missing%s", tt.also, brief(r))
			}
		})
	}
}

func TestCulprit(t *testing.T) {
	const id = "bdf4dc0af526a317e248c994719eabb233a9db337d535351a277b1b324cf5fec"
	r := report(t, append(skips(1000, 11, ""),
		`1100 "StopContainer from runtime service failed" `+late+` containerID="aaaadc0af526a317e248c994719eabb233a9db337d535351a277b1b324cf5fec"`,
		`1101 "StopContainer from runtime service failed" `+late+` containerID="aaaadc0af526a317e248c994719eabb233a9db337d535351a277b1b324cf5fec"`,
		`1241 "ContainerStatus from runtime service failed" `+late+` containerID="`+id+`"`)...)
	c := r.Episodes[0].Culprits
	if len(c) < 2 || c[0].Kind != "Container" || c[0].ID != id {
		t.Errorf("culprits %+v: the one that cannot be inspected goes first", c)
	}
}

func TestRecovery(t *testing.T) {
	const ready = `kubelet_node_status.go:486] "Recording event message for node" node="n1" event="NodeReady"`
	const sync = `"SyncLoop UPDATE" source="api" pods=["ns/p"]`
	failing := `"GenericPLEG: Unable to retrieve pods" ` + late
	tests := []struct {
		name  string
		after []string
		by    string
		want  bool
	}{
		{"the loop runs", []string{"1240 " + sync}, "SyncLoopActive", true},
		{"the node is ready", []string{"1240 " + ready}, "NodeReady", true},
		{"the node was ready before", nil, "", false},
		{"ready while the runtime still fails", []string{"1239 " + failing, "1240 " + ready, "1245 " + failing}, "", false},
		{"the kubelet goes on without skip lines", []string{`1400 "Failed to update lease" err="Put \"https://10.0.0.1:6443/apis\": dial tcp 10.0.0.1:6443: connect: connection refused"`}, "", true},
		{"the log ends soon", []string{`1240 "Failed to update lease" err="Put \"https://10.0.0.1:6443/apis\": dial tcp 10.0.0.1:6443: connect: connection refused"`}, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := report(t, append(append([]string{"900 " + sync, "901 " + ready}, skips(1000, 10, "")...), tt.after...)...)
			e := r.Episodes[0]
			if len(r.Episodes) != 1 || e.Recovered != tt.want || e.RecoveredBy != tt.by || e.Recovered != (e.RecoveredAt != nil) {
				t.Errorf("recovered %v at %v by %q, want %v by %q", e.Recovered, e.RecoveredAt, e.RecoveredBy, tt.want, tt.by)
			}
		})
	}
}

// The kubelet has had a relist but no status: it was started while the runtime hung.
func TestRestartInside(t *testing.T) {
	r := report(t, skips(1000, 4, "container runtime status check may not have completed yet")...)
	if e := r.Episodes[0]; len(e.Restarts) != 1 || e.Restarts[0].Code != "KubeletStarted" || e.Kind != Incident {
		t.Errorf("restarts %+v of kind %s", e.Restarts, e.Kind)
	}
}

func TestMovingAnchors(t *testing.T) {
	r := report(t, append(skips(1000, 3, ""), skips(1020, 3, "")...)...)
	if n := len(r.Episodes[0].Stalls); len(r.Episodes) != 1 || n != 2 {
		t.Errorf("%d episodes with %d stalls, want one with two%s", len(r.Episodes), n, brief(r))
	}
}

func TestHosts(t *testing.T) {
	p := &pool{}
	pt := &part{store: newStore(), hint: calendarHint{loc: time.UTC, notAfter: now()}}
	c := newCollector(p, newMatchers(), pt, nil, nil)
	for i, host := range []string{"n1", "n2", "n1.example.org", "n2"} {
		s := klog.Stamp{Micros: zero + int64(i)*second, Known: true, Year: true, Zone: true}
		c.take(&record{msg: []byte("PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s"), inner: s, outer: s, host: host})
	}
	r := assemble([]*part{pt}, p, &Options{Now: now, Local: time.UTC}, false)
	if len(r.Episodes) != 2 || r.Episodes[0].Lines != 2 || r.Episodes[0].Host != "n1" || r.Episodes[1].Host != "n2" || r.Host != "" {
		t.Errorf("two hosts in one log:%s", brief(r))
	}
}
