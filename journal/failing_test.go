package journal

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// containerd was started again without its CRI plugin under a kubelet that runs: half a second of refused calls, then calls that are answered
// with "unknown service".
func TestUnsupported(t *testing.T) {
	read := func(until string) *Report {
		end, err := time.Parse(time.RFC3339, "2026-11-22T"+until+"Z")
		if err != nil {
			t.Fatal(err)
		}
		r, err := Read(t.Context(), Options{
			Inputs: []Input{{Path: "testdata/kubelet/unsupported.log"}}, Until: end, Year: 2026, Local: time.UTC,
			Now: func() time.Time { return end.Add(time.Hour) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, tt := range []struct {
		name, until string
		failing     bool
	}{
		{"before PLEG is called unhealthy", "01:23:24", true},
		{"after", "01:25:10", false},
		{"the records end long before the range does", "01:26:10", false},
	} {
		r := read(tt.until)
		e := r.Failing
		if tt.failing != (e != nil) {
			t.Fatalf("%s: failing: %+v%s", tt.name, e, brief(r))
		}
		if !tt.failing {
			e = &r.Episodes[len(r.Episodes)-1]
		}
		if first := e.Causes[0]; first.Code != "RuntimeUnsupported" || first.Confidence < 0.8 || !strings.Contains(strings.Join(first.Evidence.For, "\n"), "refused calls: 6 records") {
			t.Errorf("%s: %+v", tt.name, first)
		}
		if len(e.Culprits) != 0 {
			t.Errorf("%s: no pod is at fault: %+v", tt.name, e.Culprits)
		}
	}
	if e := read("01:23:24").Failing; e.Start.Format(time.TimeOnly) != "01:21:20" || e.End.Format(time.TimeOnly) != "01:23:23" {
		t.Errorf("failing from %v to %v", e.Start, e.End)
	}
}

// What answers and what refuses can follow each other in either order.
func TestRefusedAndUnsupported(t *testing.T) {
	list := func(at float64, err string) string {
		return fmt.Sprintf(`%.1f "GenericPLEG: Unable to retrieve pods" err="rpc error: %s"`, at, err)
	}
	const refused = `code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /run/x.sock: connect: connection refused\"`
	const unsupported = `code = Unimplemented desc = unknown service runtime.v1.RuntimeService`
	down := skips(1000, 4, "container runtime is down")
	for _, tt := range []struct {
		name     string
		messages []string
		want     string
	}{
		{"only unsupported", []string{list(1001, unsupported)}, "RuntimeUnsupported"},
		{"refused, then unsupported", []string{list(1001, refused), list(1002, refused), list(1003, unsupported)}, "RuntimeUnsupported"},
		{"unsupported, then refused", []string{list(1001, unsupported), list(1002, unsupported), list(1003, refused)}, "RuntimeDown"},
	} {
		r := report(t, append(tt.messages, down...)...)
		if got := r.Episodes[0].Causes[0]; got.Code != tt.want || got.Confidence < 0.7 {
			t.Errorf("%s: want %s first%s", tt.name, tt.want, brief(r))
		}
		if c, ok := cause(r, "RuntimeDown"); ok && tt.want != "RuntimeDown" && c.Confidence >= 0.4 {
			t.Errorf("%s: something listens again: %+v", tt.name, c)
		}
		if c, ok := cause(r, "RuntimeHung"); ok {
			t.Errorf("%s: what answers does not hang: %+v", tt.name, c)
		}
	}
}

func TestFailing(t *testing.T) {
	const refused = ` "GenericPLEG: Unable to retrieve pods" err="rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /run/x.sock: connect: connection refused\""`
	fails := func(from, n int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("%d%s", from+i, refused))
		}
		return out
	}
	const sync = ` "SyncLoop (PLEG): event for pod" pod="ns/p" event={"ID":"a","Type":"ContainerDied","Data":"b"}`
	old := append(skips(0, 3, ""), "200"+sync)
	for _, tt := range []struct {
		name     string
		messages []string
		want     bool
	}{
		{"relists fail", fails(1000, 10), true},
		{"beside an incident that ended", append(old, fails(1000, 10)...), true},
		{"once or twice", fails(1000, 2), false},
		{"the log goes on", append(fails(1000, 10), `1030 "SyncLoop ADD" source="file" pods=["a/b"]`), false},
		{"an incident goes on", append(fails(1000, 10), skips(825, 1, "")...), false},
		{"the loop does no work", []string{
			`1000 "Skipping pod synchronization" err="container runtime is down"`, `1005 "Skipping pod synchronization" err="container runtime is down"`,
			`1010 "Skipping pod synchronization" err="container runtime is down"`,
		}, true},
	} {
		r := report(t, tt.messages...)
		if got := r.Failing != nil; got != tt.want {
			t.Errorf("%s: %+v, want %v%s", tt.name, r.Failing, tt.want, brief(r))
		}
		if e := r.Failing; e != nil && (e.Kind != Failing || e.Lines < failingFrom || len(e.Causes) == 0 || e.Start.UnixMicro() != zero+1000*second) {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}

// Of a text few stamps are looked at: where the range ends inside it, it is read up to there all the same.
func TestFailingEndsInside(t *testing.T) {
	var b strings.Builder
	begin := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	at := func(s int) string { return begin.Add(time.Duration(s) * time.Second).Format("0102 15:04:05.000000") }
	for s := range 10 {
		fmt.Fprintf(&b, "E%s 1234 generic.go:312] \"GenericPLEG: Unable to retrieve pods\" err=\"rpc error: code = Unavailable desc = connection error\"\n", at(s))
	}
	for s := range 20 {
		fmt.Fprintf(&b, "I%s 1234 prober.go:107] \"Probe failed\" probeType=\"Readiness\"\n", at(20+10*s))
	}
	for _, tt := range []struct {
		until time.Duration
		want  bool
	}{{15 * time.Second, true}, {time.Minute, false}, {time.Hour, false}} {
		r, err := Read(t.Context(), Options{
			Inputs: []Input{{Kind: Stream, Reader: strings.NewReader(b.String())}}, Now: now, Local: time.UTC, Until: begin.Add(tt.until),
		})
		if err != nil || (r.Failing != nil) != tt.want {
			t.Errorf("until %v: failing %+v, want %v; %v", tt.until, r.Failing, tt.want, err)
		}
	}
}
