package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// readLog judges messages that stand at seconds after midnight, written "seconds message" or "seconds@sender
// message", in the order given. Those without a sender are the kubelet's.
func readLog(t *testing.T, messages ...string) *journal.Report {
	t.Helper()
	var b strings.Builder
	for _, m := range messages {
		sec, text, _ := strings.Cut(m, " ")
		sec, sender, _ := strings.Cut(sec, "@")
		d, err := time.ParseDuration(sec + "s")
		if err != nil {
			t.Fatal(err)
		}
		if sender == "" {
			sender = "kubelet"
		}
		at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).Add(d)
		fmt.Fprintf(&b, "%s n1 %s[1]: %s\n", at.Format("2006-01-02T15:04:05.000000-07:00"), sender, text)
	}
	return readText(t, journal.Options{Inputs: []journal.Input{{
		Kind: journal.Stream, Path: "-",
		Reader: strings.NewReader(b.String()),
	}}})
}

// readText reads and judges a log.
func readText(t *testing.T, opts journal.Options) *journal.Report {
	t.Helper()
	opts.Local, opts.Now = time.UTC, func() time.Time { return time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC) }
	r, err := journal.Read(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	Journal(r)
	return r
}

// causesOf words the episodes of a report for a failed test.
func causesOf(r *journal.Report) string {
	var b strings.Builder
	for _, e := range r.Episodes {
		fmt.Fprintf(&b, "\n  %s %v..%v lines=%d worst=%gs recovered=%v", e.Kind, e.Start, e.End, e.Lines,
			e.MaxLastSeenSeconds, e.Recovered)
		for _, c := range e.Causes {
			fmt.Fprintf(&b, "\n    %s %.2f %v", c.Code, c.Confidence, c.Evidence.For)
		}
	}
	return b.String()
}

// causeIn returns the cause of the first incident with a code.
func causeIn(r *journal.Report, code string) (journal.Cause, bool) {
	for _, e := range r.Episodes {
		for _, c := range e.Causes {
			if c.Code == code {
				return c, true
			}
		}
	}
	return journal.Cause{}, false
}

const lateCall = `err="rpc error: code = DeadlineExceeded desc = context deadline exceeded"`

// skips are n skip lines, five seconds apart, of a stall that began at an anchor; beside is what else they list.
func skipLines(anchor float64, n int, beside string) []string {
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

// frozen is a runtime that hangs as a whole from an anchor at 1000 s.
func frozen() []string {
	return append([]string{
		`1120 "GenericPLEG: Unable to retrieve pods" ` + lateCall,
		`1121 "Container runtime sanity check failed" ` + lateCall,
		`1241 "GenericPLEG: Unable to retrieve pods" ` + lateCall,
	}, skipLines(1000, 60, "container runtime is down")...)
}

// Without a call on record that failed, a log tells little of a runtime: which words are right?
func TestRuntimeWithoutCalls(t *testing.T) {
	const notReady = "container runtime not ready: RuntimeReady=false reason:ContainerdNotReady " +
		"message:snapshotter not loaded"
	const failed = "1000@systemd containerd.service: Main process exited, code=exited, status=2/INVALIDARGUMENT"
	down := skipLines(1000, 20, "container runtime is down")
	tests := []struct {
		name     string
		messages []string
		code     string
		min, max float64
		not      string
	}{
		{"its unit failed", append([]string{failed}, down...), "RuntimeDown", 0.65, 0.75, "RuntimeHung"},
		{"another unit failed", append([]string{strings.Replace(failed, "containerd.service", "kubelet.service", 1)},
			down...), "RuntimeHung", 0.05, 0.45, "RuntimeDown"},
		{"its unit failed and was started again", append([]string{
			failed,
			"1005@systemd Started containerd container runtime.",
		}, down...), "RuntimeDown", 0.5, 0.6, ""},
		{
			"its unit failed long after", append([]string{strings.Replace(failed, "1000@", "1200@", 1)}, down...),
			"PLEGUnhealthy", 0.4, 0.4, "",
		},
		{
			"it says that it is not ready", skipLines(1000, 20, "container runtime is down, "+notReady),
			"RuntimeNotReady", 0.65, 0.75, "RuntimeHung",
		},
		{"the kubelet calls it down", down, "RuntimeHung", 0.05, 0.45, "PLEGUnhealthy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := readLog(t, tt.messages...)
			first := r.Episodes[0].Causes[0]
			if first.Code != tt.code || first.Confidence < tt.min || first.Confidence > tt.max {
				t.Errorf("first is %s %.2f, want %s %.2f to %.2f%s", first.Code, first.Confidence, tt.code, tt.min,
					tt.max, causesOf(r))
			}
			if c, ok := causeIn(r, tt.not); ok {
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
	r := readLog(t, append([]string{
		`1001 "ListPodSandbox with filter from runtime service failed" ` + refused,
		`1001.001 "GenericPLEG: Unable to retrieve pods" ` + refused,
	}, skipLines(1000, 3, "container runtime is down")...)...)
	c, _ := causeIn(r, "RuntimeDown")
	text := strings.Join(c.Evidence.For, "\n")
	if !strings.Contains(text, "refused calls: 2 records") || strings.Contains(text, "times") ||
		strings.Contains(text, "no connection to the runtime") {
		t.Errorf("evidence:\n%s", text)
	}
	r = readLog(t, skipLines(1000, 17, "")...)
	c, _ = causeIn(r, "PLEGUnhealthy")
	if got, want := strings.Join(c.Evidence.For, "\n"), "17 records, no failing call among them"; got != want {
		t.Errorf("evidence %q, want %q", got, want)
	}
}

func TestListHangEnds(t *testing.T) {
	const list = ` "ListContainers with filter from runtime service failed" ` + lateCall
	once := append([]string{"1120" + list}, skipLines(1000, 3, "")...)
	tests := []struct {
		name     string
		messages []string
		want     float64
	}{
		{"goes on", once, 0.75},
		{"once, then back", append(once, `1200 "SyncLoop UPDATE" source="api" pods=["ns/p"]`), 0.45},
		{"once in relists that end", append(once, skipLines(1020, 3, "")...), 0.45},
		{"again and again, then back", append(append([]string{"1120" + list, "1241" + list},
			skipLines(1000, 14, "")...), `1260 "SyncLoop UPDATE" source="api" pods=["ns/p"]`), 0.75},
	}
	for _, tt := range tests {
		if c, _ := causeIn(readLog(t, tt.messages...), "ListHang"); c.Confidence != tt.want {
			t.Errorf("%s: %.2f, want %.2f", tt.name, c.Confidence, tt.want)
		}
	}
}

func TestIncidentCauses(t *testing.T) {
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
				`1120 "GenericPLEG: Unable to retrieve pods" ` + lateCall,
				`1121 "Container runtime sanity check failed" ` + lateCall,
			}, skipLines(1000, 30, "container runtime is down")...),
			first: "RuntimeHung", not: "ListHang",
		},
		{
			name: "a dead runtime",
			messages: append([]string{
				`1001 "GenericPLEG: Unable to retrieve pods" err="rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused\""`,
			}, skipLines(1000, 10, "container runtime is down")...),
			first: "RuntimeDown", not: "RuntimeHung",
		},
		{
			name: "only the lists hang",
			messages: append([]string{
				`1120 "ListContainers with filter from runtime service failed" ` + lateCall +
					` filter="&ContainerFilter{}"`,
				`1120.1 "GenericPLEG: Unable to retrieve pods" ` + lateCall,
			}, skipLines(1000, 10, "")...),
			first: "ListHang", not: "RuntimeHung",
		},
		{
			name: "a container that cannot be inspected",
			messages: append(skipLines(1000, 11, ""),
				`1241 "ContainerStatus from runtime service failed" `+lateCall+` containerID="bdf4dc0af526a317e248c994719eabb233a9db337d535351a277b1b324cf5fec"`),
			first: "InspectHang", not: "ListHang",
		},
		{
			name: "an answer that is too large",
			messages: append([]string{
				`1001 "GenericPLEG: Unable to retrieve pods" err="rpc error: code = ResourceExhausted desc = grpc: trying to send message larger than max (16785410 vs. 16777216)"`,
			}, skipLines(1000, 10, "")...),
			first: "ListTooLarge",
		},
		{
			name: "a hung task in the kernel goes before the hung runtime",
			messages: append([]string{
				"1125 INFO: task containerd:987 blocked for more than 120 seconds.",
				`1120 "GenericPLEG: Unable to retrieve pods" ` + lateCall,
			}, skipLines(1000, 10, "container runtime is down")...),
			first: "KernelHung", also: "RuntimeHung",
		},
		{
			name: "a dead file server goes before what waits for it",
			messages: append([]string{
				"1010 nfs: server 10.36.3.5 not responding, still trying",
				`1120 "GenericPLEG: Unable to retrieve pods" ` + lateCall,
			}, skipLines(1000, 10, "")...),
			first: "FilesystemHung", also: "ListHang",
		},
		{
			name: "a hung task long after PLEG had gone bad is no root",
			messages: append([]string{
				`1120 "GenericPLEG: Unable to retrieve pods" ` + lateCall,
			}, append(skipLines(1000, 60, "container runtime is down"),
				"1470 INFO: task nginx:987 blocked for more than 120 seconds.")...),
			first: "RuntimeHung", also: "KernelHung", not: "KernelHung",
		},
		{name: "nothing but skip lines", messages: skipLines(1000, 10, ""), first: "PLEGUnhealthy", not: "RuntimeHung"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := readLog(t, tt.messages...)
			if len(r.Episodes) != 1 {
				t.Fatalf("%d episodes, want 1", len(r.Episodes))
			}
			causes := r.Episodes[0].Causes
			if causes[0].Code != tt.first {
				t.Errorf("first is %s, want %s%s", causes[0].Code, tt.first, causesOf(r))
			}
			for _, c := range causes {
				if c.Code == tt.not && c.Confidence >= likelyRoot {
					t.Errorf("%s has confidence %.2f%s", c.Code, c.Confidence, causesOf(r))
				}
				if len(c.Evidence.For) == 0 || c.Confidence <= 0 || c.Confidence > 0.95 || c.Summary == "" {
					t.Errorf("%+v", c)
				}
			}
			if tt.also != "" && !slices.ContainsFunc(causes, func(c journal.Cause) bool { return c.Code == tt.also }) {
				t.Errorf("%s is missing%s", tt.also, causesOf(r))
			}
		})
	}
}

func TestCulprit(t *testing.T) {
	const id = "bdf4dc0af526a317e248c994719eabb233a9db337d535351a277b1b324cf5fec"
	r := readLog(t, append(skipLines(1000, 11, ""),
		`1100 "StopContainer from runtime service failed" `+lateCall+` containerID="aaaadc0af526a317e248c994719eabb233a9db337d535351a277b1b324cf5fec"`,
		`1101 "StopContainer from runtime service failed" `+lateCall+` containerID="aaaadc0af526a317e248c994719eabb233a9db337d535351a277b1b324cf5fec"`,
		`1241 "ContainerStatus from runtime service failed" `+lateCall+` containerID="`+id+`"`)...)
	c := r.Episodes[0].Culprits
	if len(c) < 2 || c[0].Kind != "Container" || c[0].ID != id {
		t.Errorf("culprits %+v: the one that cannot be inspected goes first", c)
	}
}

// containerd was started again without its CRI plugin under a kubelet that runs: half a second of refused calls, then
// calls that are answered with "unknown service".
func TestUnsupported(t *testing.T) {
	read := func(until string) *journal.Report {
		end, err := time.Parse(time.RFC3339, "2026-11-22T"+until+"Z")
		if err != nil {
			t.Fatal(err)
		}
		return readText(t, journal.Options{Inputs: []journal.Input{{Path: "../../journal/testdata/kubelet/unsupported.log"}}, Until: end, Year: 2026})
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
			t.Fatalf("%s: failing: %+v%s", tt.name, e, causesOf(r))
		}
		if !tt.failing {
			e = &r.Episodes[len(r.Episodes)-1]
		}
		if first := e.Causes[0]; first.Code != "RuntimeUnsupported" || first.Confidence < 0.8 ||
			!strings.Contains(strings.Join(first.Evidence.For, "\n"), "refused calls: 6 records") {
			t.Errorf("%s: %+v", tt.name, first)
		}
		if len(e.Culprits) != 0 {
			t.Errorf("%s: no pod is at fault: %+v", tt.name, e.Culprits)
		}
	}
	if e := read("01:23:24").Failing; e.Start.Format(time.TimeOnly) != "01:21:20" ||
		e.End.Format(time.TimeOnly) != "01:23:23" {
		t.Errorf("failing from %v to %v", e.Start, e.End)
	}
}

// stall returns the skip lines of a relist that begins at an anchor and lasts some seconds, as the sync loop writes
// them.
func stallLines(anchor, lasts float64) []string {
	var out []string
	pause := 0.1
	for age := 180.2; age < lasts; age += pause {
		if age > 180.2 {
			pause = min(2*pause, 5)
		}
		out = append(out, fmt.Sprintf(`%.3f "Skipping pod synchronization" err="PLEG is not healthy: pleg was last seen active %.3fs ago; threshold is 3m0s"`, anchor+age, age))
	}
	return out
}

// series returns stalls that follow each other directly.
func seriesLines(lasts ...float64) []string {
	var out []string
	at := 1000.0
	for _, d := range lasts {
		out = append(out, stallLines(at, d)...)
		at += d + 1
	}
	return append(out, fmt.Sprintf(`%.3f "SyncLoop UPDATE" source="api" pods=["ns/p"]`, at))
}

func TestSeries(t *testing.T) {
	const housekeeping = `1210 "Housekeeping took longer than expected" err="housekeeping took too long" expected="1s" actual="9.001s"`
	tests := []struct {
		name     string
		messages []string
		first    string
		min      float64
	}{
		{"two hung calls each", seriesLines(240, 240, 240), "InspectHang", 0.6},
		{"each for another time", seriesLines(190, 201, 185, 229), "RelistOverloaded", 0.5},
		{
			"each for another time, with other slowness", append(seriesLines(190, 201, 185, 229), housekeeping),
			"RuntimeSlow", 0.5,
		},
		{"one alone shows no series", seriesLines(225), "PLEGUnhealthy", 0.4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := readLog(t, tt.messages...)
			for i, e := range r.Episodes {
				if c := e.Causes[0]; c.Code != tt.first || c.Confidence < tt.min {
					t.Errorf("episode %d: first is %s %.2f, want %s from %.2f%s", i, c.Code, c.Confidence, tt.first,
						tt.min, causesOf(r))
				}
			}
		})
	}
}

// A first record that comes lateCall tells of a loop that stood still only if it is the loop's first, and nothing
// else says what it waited for.
func TestStandstill(t *testing.T) {
	skip := func(anchor, age float64, beside string) string {
		text := fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is 3m0s",
			time.Duration(age*float64(time.Second)))
		return fmt.Sprintf(`%.3f "Skipping pod synchronization" err="[%s%s]"`, anchor+age, beside, text)
	}
	const sync = ` "SyncLoop (PLEG): event for pod" pod="ns/p" event={"ID":"a","Type":"ContainerDied","Data":"b"}`
	const down = "container runtime is down, "
	tests := []struct {
		name     string
		messages []string
		stalled  bool
		first    string
	}{
		{"one record, and the loop works", []string{skip(1000, 260, down), "1260.3" + sync}, true, "KubeletStalled"},
		{"its back-off begins", []string{
			skip(1000, 260, down), skip(1000, 260.1, down), skip(1000, 260.3, down),
			"1261" + sync,
		}, true, "KubeletStalled"},
		{"on time", []string{skip(1000, 184, down), "1184.3" + sync}, false, "RuntimeHung"},
		{"the log begins in the middle", []string{
			skip(1000, 260, down), skip(1000, 265, down), skip(1000, 270, down),
			"1275" + sync,
		}, false, "RuntimeHung"},
		{"a list hung meanwhile", []string{
			`1120 "GenericPLEG: Unable to retrieve pods" ` + lateCall,
			skip(1000, 260, ""), "1260.3" + sync,
		}, false, "ListHang"},
		{
			"the loop spoke of the runtime",
			[]string{
				`1200 "Skipping pod synchronization" err="container runtime is down"`, skip(1000, 260, down),
				"1260.3" + sync,
			},
			false, "RuntimeHung",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := readLog(t, tt.messages...)
			if len(r.Episodes) != 1 {
				t.Fatalf("want one episode%s", causesOf(r))
			}
			c, ok := causeIn(r, "KubeletStalled")
			if stalled := ok && strings.Contains(c.Summary, "stood still for"); stalled != tt.stalled ||
				r.Episodes[0].Causes[0].Code != tt.first {
				t.Errorf("stood still: %v, want %v; first should be %s%s", stalled, tt.stalled, tt.first, causesOf(r))
			}
		})
	}
}
