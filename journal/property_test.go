package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// A line is one line of a made-up kubelet log.
type line struct {
	at   time.Time
	text string // behind the header
	skip bool   // PLEG is not healthy
}

// kubeletLog makes a log with n stalls of different lengths: healthy lines every few seconds, then skip lines with the
// kubelet's own back-off, and the proof that the loop runs again.
func kubeletLog(rng *rand.Rand, n int) []line {
	var out []line
	at := time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC)
	healthy := func(until time.Time) {
		for at.Before(until) {
			out = append(out, line{at: at, text: `I kubelet.go:2752] "SyncLoop (PLEG): event for pod" pod="ns/p" ` +
				`event={"ID":"u","Type":"ContainerStarted","Data":"c"}`})
			at = at.Add(time.Duration(2+rng.IntN(7)) * time.Second)
		}
	}
	for range n {
		healthy(at.Add(time.Duration(4+rng.IntN(6)) * time.Minute))
		anchor := at.Add(-time.Duration(rng.IntN(1000)) * time.Millisecond)
		at = anchor.Add(3*time.Minute + time.Duration(rng.IntN(900))*time.Millisecond + time.Microsecond)
		pause := 100 * time.Millisecond
		for range 8 + rng.IntN(40) {
			age := at.Sub(anchor)
			out = append(out, line{at: at, skip: true, text: fmt.Sprintf(`E kubelet.go:2661] "Skipping pod `+
				`synchronization" err="PLEG is not healthy: pleg was last seen active %v ago"`, age)})
			at = at.Add(pause + time.Duration(rng.IntN(900))*time.Microsecond)
			pause = min(2*pause, 5*time.Second)
		}
		at = at.Add(time.Second)
	}
	healthy(at.Add(5 * time.Minute))
	return out
}

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
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 3))
		n := 1 + rng.IntN(5)
		log := kubeletLog(rng, n)
		var skips []int
		for i, l := range log {
			if l.skip {
				skips = append(skips, i)
			}
		}
		step := func(from int, d time.Duration) []line {
			out := slices.Clone(log)
			for i := from; i < len(out); i++ {
				out[i].at = out[i].at.Add(d)
			}
			return out
		}
		reversed := slices.Clone(log)
		slices.Reverse(reversed)
		thinned := func() []line {
			out, k := []line(nil), 0
			for _, l := range log {
				if k++; !l.skip || k%2 == 0 {
					out = append(out, l)
				}
			}
			return out
		}
		check := func(what string, files ...string) {
			t.Helper()
			r := readFile(t, files...)
			if len(r.Episodes) != n || slices.ContainsFunc(r.Episodes,
				func(e Episode) bool { return e.Kind != Incident || !e.Recovered }) {
				t.Errorf("seed %d: %s: %d episodes, want %d recovered incidents: %q", seed, what, len(r.Episodes), n,
					briefs(r))
			}
		}
		check("as it is", write(t, "log", log))
		check("shifted by 7 h", write(t, "log", step(0, 7*time.Hour+13*time.Minute)))
		check("newest first", write(t, "log", reversed))
		check("every second skip line gone", write(t, "log", thinned()))
		for range 3 {
			cut := rng.IntN(len(log))
			check("in two files", write(t, "kubelet.log.1", log[:cut+1]), write(t, "kubelet.log", log[cut+1:]))
			anywhere := rng.IntN(len(log))
			check(fmt.Sprintf("clock back 20 min at %d", anywhere), write(t, "log", step(anywhere, -20*time.Minute)))
			check(fmt.Sprintf("clock forward 1 h at %d", anywhere), write(t, "log", step(anywhere, time.Hour)))
			within := skips[rng.IntN(len(skips))]
			check(fmt.Sprintf("clock forward 1 h within a stall, at %d", within),
				write(t, "log", step(within, time.Hour)))
			check(fmt.Sprintf("clock back 1 h within a stall, at %d", within),
				write(t, "log", step(within, -time.Hour)))
		}
		twice := write(t, "kubelet.log", log)
		check("in two sources", twice, write(t, "syslog", log))
		var counted int
		for _, e := range readFile(t, twice).Episodes {
			counted += e.Lines
		}
		if counted != len(skips) {
			t.Errorf("seed %d: %d lines in episodes, want %d", seed, counted, len(skips))
		}
	}
}
