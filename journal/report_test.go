package journal

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/textlog"
)

// report assembles records at seconds after zero, written "seconds message" or "seconds/host message".
func report(t *testing.T, messages ...string) *Report {
	t.Helper()
	r := newReading(&Options{Now: now, Local: time.UTC}, nil)
	s := r.newSource(&job{name: "test"})
	c := r.newCollector(s)
	for _, m := range messages {
		sec, text, _ := strings.Cut(m, " ")
		sec, host, _ := strings.Cut(sec, "/")
		d, err := time.ParseDuration(sec + "s")
		must(t, err)
		at := klog.Stamp{Micros: zero + d.Microseconds(), Known: true, Year: true, Zone: true}
		c.take(&textlog.Record{Message: []byte(text), Inner: at, Outer: at, PID: 1, Host: cmp.Or(host, "n1")})
	}
	return assemble([]*logSource{s}, r.opts)
}

// skips are n skip lines, five seconds apart, of a stall that began at an anchor.
func skips(anchor float64, n int) []string {
	var out []string
	for k := range n {
		age := time.Duration((183 + 5*float64(k)) * float64(time.Second))
		out = append(out, fmt.Sprintf(`%.3f "Skipping pod synchronization" err="PLEG is not healthy: `+
			`pleg was last seen active %v ago; threshold is 3m0s"`, anchor+age.Seconds(), age))
	}
	return out
}

func TestRecovery(t *testing.T) {
	const ready = `kubelet_node_status.go:486] "Recording event message for node" node="n1" event="NodeReady"`
	const sync = `"SyncLoop UPDATE" source="api" pods=["ns/p"]`
	const other = ` "Failed to update lease" err="Put \"https://10.0.0.1:6443/apis\": dial tcp 10.0.0.1:6443: EOF"`
	for _, tt := range []struct {
		name  string
		after []string
		want  string
	}{
		{"the loop runs", []string{"1240 " + sync}, `true by "SyncLoopActive"`},
		{"the node is ready", []string{"1240 " + ready}, `true by "NodeReady"`},
		{"the node was ready before", nil, `false by ""`},
		{"the kubelet goes on without skip lines", []string{"1400" + other}, `true by ""`},
		{"the log ends soon", []string{"1240" + other}, `false by ""`},
	} {
		messages := append([]string{"900 " + sync, "901 " + ready}, skips(1000, 10)...)
		r := report(t, append(messages, tt.after...)...)
		e := r.Episodes[0]
		got := fmt.Sprintf("%v by %q", e.Recovered, e.RecoveredBy)
		if len(r.Episodes) != 1 || got != tt.want || e.Recovered != (e.RecoveredAt != nil) {
			t.Errorf("%s: recovered %s at %v, want %s", tt.name, got, e.RecoveredAt, tt.want)
		}
	}
}

// hangLog writes skip lines each 5 s from 03:03:00 on, and then the same kubelet's other lines. At the sixth line its
// clock is set by step.
func hangLog(step time.Duration, between string) string {
	var b strings.Builder
	clock := time.Date(0, 11, 20, 3, 3, 0, 0, time.UTC)
	for n := range 60 {
		if n == 6 {
			clock = clock.Add(step)
		}
		fmt.Fprintf(&b, "E%s 1234 kubelet.go:2661] \"Skipping pod synchronization\" "+
			"err=\"PLEG is not healthy: pleg was last seen active %s ago; threshold is 3m0s\"\n",
			clock.Format("0102 15:04:05.000000"), 191*time.Second+time.Duration(n)*5*time.Second)
		clock = clock.Add(5 * time.Second)
	}
	b.WriteString(between)
	for range 60 {
		fmt.Fprintf(&b, "I%s 1234 prober.go:107] \"Probe failed\" probeType=\"Readiness\"\n",
			clock.Format("0102 15:04:05.000000"))
		clock = clock.Add(10 * time.Second)
	}
	return b.String()
}

// TestEnds checks that a step of the clock does not stretch an episode, and that an unknown end is no recovery.
func TestEnds(t *testing.T) {
	suppressed := "Nov 20 03:08:00 n1 systemd-journald[300]: Suppressed 1200 messages from kubelet.service\n"
	for _, tt := range []struct {
		name, text string
		until      time.Time
		recovered  bool
		seconds    float64
	}{
		{"the kubelet goes on with other things", hangLog(0, ""), time.Time{}, true, 295},
		{"the range ends inside", hangLog(0, ""), time.Date(2026, 11, 20, 3, 5, 0, 0, time.UTC), false, 120},
		{"journald left out records", hangLog(0, suppressed), time.Time{}, false, 295},
		{"the clock is set forward", hangLog(time.Hour, ""), time.Time{}, false, 295},
		{"by less", hangLog(15*time.Minute, ""), time.Time{}, false, 295},
		{"back", hangLog(-time.Hour, ""), time.Time{}, false, 295},
	} {
		r := readText(t, tt.text, Options{Until: tt.until})
		if len(r.Episodes) != 1 || r.Episodes[0].Recovered != tt.recovered || r.Episodes[0].Seconds != tt.seconds ||
			r.Episodes[0].End.Before(*r.Episodes[0].Start) {
			t.Errorf("%s:%s; want one episode of %g s, recovered %v", tt.name, briefs(r), tt.seconds, tt.recovered)
		}
	}
}
