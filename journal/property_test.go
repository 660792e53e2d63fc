package journal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A line is one line of a made-up kubelet log.
type line struct {
	at   time.Time
	text string // behind the header
}

// kubeletLog makes a log with n stalls: healthy lines for ten minutes, then three minutes later a minute of records
// that PLEG is not healthy, and the proof that the loop runs again.
func kubeletLog(n int) (log []line) {
	at := time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC)
	healthy := func() {
		for range 120 {
			log = append(log, line{at, `I kubelet.go:2752] "SyncLoop (PLEG): event for pod" pod="ns/p" ` +
				`event={"ID":"u","Type":"ContainerStarted","Data":"c"}`})
			at = at.Add(5 * time.Second)
		}
	}
	for range n {
		healthy()
		anchor := at.Add(-300 * time.Millisecond)
		at = anchor.Add(3*time.Minute + time.Microsecond)
		for range stalled {
			log = append(log, line{at, fmt.Sprintf(`E kubelet.go:2661] "Skipping pod synchronization" err="PLEG is not `+
				`healthy: pleg was last seen active %v ago"`, at.Sub(anchor))})
			at = at.Add(5 * time.Second)
		}
	}
	healthy()
	return log
}

// stalled is the number of records in each stall of kubeletLog.
const stalled = 12

// write puts lines into a file as klog writes them.
func write(t testing.TB, name string, lines []line) string {
	t.Helper()
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%c%s %7d %s\n", l.text[0], l.at.Format("0102 15:04:05.000000"), 4242, l.text[2:])
	}
	return put(t, name, b.String())
}

// TestIncidentsSurvive does to a log what adds and loses no incident.
func TestIncidentsSurvive(t *testing.T) {
	const n = 3
	log := kubeletLog(n)
	check := func(what string, files ...string) {
		t.Helper()
		r := readFile(t, files...)
		if len(r.Episodes) != n || slices.ContainsFunc(r.Episodes, func(e Episode) bool {
			return e.Kind != Incident || !e.Recovered || e.Lines != stalled
		}) {
			t.Errorf("%s: %d episodes, want %d recovered incidents: %q", what, len(r.Episodes), n, briefs(r))
		}
	}
	step := func(from int, d time.Duration) string {
		out := slices.Clone(log)
		for i := from; i < len(out); i++ {
			out[i].at = out[i].at.Add(d)
		}
		return write(t, "log", out)
	}
	reversed := slices.Clone(log)
	slices.Reverse(reversed)
	check("as it is", write(t, "kubelet.log", log))
	check("newest first", write(t, "log", reversed))
	check("in two sources", write(t, "kubelet.log", log), write(t, "syslog", log))
	for cut := 6; cut < len(log); cut += 21 {
		check(fmt.Sprint("in two files at ", cut), write(t, "kubelet.log.1", log[:cut]), write(t, "kubelet.log", log[cut:]))
		check(fmt.Sprint("clock back 20 min at ", cut), step(cut, -20*time.Minute))
		check(fmt.Sprint("clock forward 1 h at ", cut), step(cut, time.Hour))
	}
}
