package gc

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// TestPace feeds probes to a pace of at most 16 whose quiet probes took 10 ms: up to 17 ms are quick.
func TestPace(t *testing.T) {
	times := func(n int, d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }
	tests := []struct {
		name   string
		probes []time.Duration // below 0: no answer
		want   int
		pauses int
	}{
		{"never beyond the most", times(300, 10*ms), 16, 0},
		{"one slow probe is noise", slices.Concat(times(6, 10*ms), []time.Duration{10 * ms, 90 * ms, 10 * ms}), 8, 0},
		{"halves when slow", slices.Concat(times(6, 10*ms), times(3, 18*ms)), 2, 0},
		{"then grows by half", slices.Concat(times(6, 10*ms), times(3, 18*ms), times(15, 10*ms)), 8, 0},
		{"one at a time goes on when slow", times(9, 18*ms), 1, 0},
		{"pauses without an answer", []time.Duration{10 * ms, 10 * ms, 10 * ms, -1}, 2, 1},
		{"goes on with one after an answer", slices.Concat(times(6, 10*ms), []time.Duration{-1, 90 * ms}), 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPace(16, times(quietProbes, 10*ms), 0)
			for _, d := range tt.probes {
				p.probed(d, d >= 0)
			}
			paused := len(tt.probes) > 0 && tt.probes[len(tt.probes)-1] < 0
			if p.width != tt.want || p.pauses != tt.pauses || p.paused != paused {
				t.Errorf("width %d, %d pauses, paused %t; want %d, %d", p.width, p.pauses, p.paused, tt.want, tt.pauses)
			}
		})
	}
}

// TestPaceMeasure calls a probe slow relative to the quiet ones, but not within the scheduler's noise, and not
// where another client's relist, which takes much longer, would not notice.
func TestPaceMeasure(t *testing.T) {
	for want, p := range map[time.Duration]*pace{
		17 * ms:                 newPace(16, []time.Duration{10 * ms, 10 * ms, 10 * ms}, 0),
		40 * ms:                 newPace(16, []time.Duration{10 * ms, 10 * ms, 40 * ms}, 0), // the slowest
		100 * ms:                newPace(16, []time.Duration{10 * ms, 10 * ms, 4000 * ms}, 0),
		1700 * time.Microsecond: newPace(16, []time.Duration{ms / 10}, 0),
		34 * ms:                 newPace(16, []time.Duration{ms}, 60*ms),
	} {
		if p.slow != want {
			t.Errorf("slow beyond %v, want %v", p.slow, want)
		}
	}
}
