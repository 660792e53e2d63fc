package gc

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func steady(n int, d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }

// ease drives a pacer through n removals of a runtime that is at ease and removes so many per second at a limit.
func ease(p *pacer, now *time.Time, n int, rate func(limit int) float64) {
	for range n {
		*now = now.Add(time.Duration(float64(time.Second) / rate(p.limit)))
		p.probed(10*ms, true, *now)
		p.finished(endedWell, *now)
	}
}

// calibrate answers the probes of a calibration.
func calibrate(p *pacer, now *time.Time, took time.Duration) {
	for range calibration {
		*now = now.Add(took)
		p.probed(took, true, *now)
	}
}

func TestPacer(t *testing.T) {
	linear := func(limit int) float64 { return 20 * float64(max(limit, 1)) }
	tests := []struct {
		name  string
		do    func(p *pacer, now *time.Time)
		limit int
		gap   time.Duration
	}{
		{name: "starts with one", do: func(*pacer, *time.Time) {}, limit: 1},
		{name: "doubles while that pays", do: func(p *pacer, now *time.Time) { ease(p, now, 8+8, linear) }, limit: 4},
		{name: "never beyond the most", do: func(p *pacer, now *time.Time) { ease(p, now, 5000, linear) }, limit: 16},
		{name: "never beyond the cap", do: func(p *pacer, now *time.Time) {
			ease(p, now, 5000, linear)
			p.cap(8, *now)
			ease(p, now, 5000, linear)
		}, limit: 8},
		{name: "a cap during a pause leaves it one", do: func(p *pacer, now *time.Time) {
			ease(p, now, 5000, linear)
			p.pause("test")
			p.cap(8, *now)
		}, limit: 0},
		{name: "at the least where more gains nothing", do: func(p *pacer, now *time.Time) {
			ease(p, now, 5000, func(limit int) float64 { return 20 * float64(min(limit, 4)) })
		}, limit: 4},
		{name: "back where more loses", do: func(p *pacer, now *time.Time) {
			ease(p, now, 2000, func(limit int) float64 { return 30 * float64(limit) / max(1, float64(limit*limit)/9) })
		}, limit: 3},
		{name: "one slow probe is noise", do: func(p *pacer, now *time.Time) {
			ease(p, now, 16, linear)
			p.probed(20*ms, true, *now)
		}, limit: 4},
		{name: "three slow probes are not", do: func(p *pacer, now *time.Time) {
			ease(p, now, 16, linear)
			p.probed(20*ms, true, *now)
			p.probed(10*ms, true, *now)
			p.probed(20*ms, true, *now)
			p.probed(20*ms, true, *now)
		}, limit: 3},
		{name: "one very slow probe halves", do: func(p *pacer, now *time.Time) {
			ease(p, now, 16, linear)
			p.probed(50*ms, true, *now)
		}, limit: 2},
		{name: "an error halves", do: func(p *pacer, now *time.Time) {
			ease(p, now, 16, linear)
			p.finished(endedLost, *now)
		}, limit: 2},
		{name: "slow with one at a time: is it us?", do: func(p *pacer, now *time.Time) {
			p.probed(50*ms, true, *now)
		}, limit: 0},
		{name: "an answer that was asked for before does not tell", do: func(p *pacer, now *time.Time) {
			p.probed(50*ms, true, *now)
			for range 2 * calibration {
				p.probed(10*ms, true, *now)
			}
		}, limit: 0},
		{name: "it is, and gaps come below one", do: func(p *pacer, now *time.Time) {
			p.probed(50*ms, true, *now)
			calibrate(p, now, 10*ms)
			p.probed(50*ms, true, *now)
			p.probed(50*ms, true, *now)
		}, limit: 1, gap: 40 * ms},
		{name: "it is not, and that is the new quiet", do: func(p *pacer, now *time.Time) {
			p.probed(50*ms, true, *now)
			calibrate(p, now, 50*ms)
			p.probed(50*ms, true, *now)
			p.probed(50*ms, true, *now)
		}, limit: 1},
		{name: "gaps close again", do: func(p *pacer, now *time.Time) {
			p.probed(50*ms, true, *now)
			calibrate(p, now, 10*ms)
			p.probed(50*ms, true, *now)
			p.probed(50*ms, true, *now)
			ease(p, now, 16, linear)
		}, limit: 1},
		{name: "slow for good is a pause", do: func(p *pacer, now *time.Time) {
			p.probed(50*ms, true, *now)
			calibrate(p, now, 10*ms)
			for range 7 {
				p.probed(50*ms, true, *now)
			}
		}, limit: 0},
		{name: "a pod that cannot be removed does not hold up the rest", do: func(p *pacer, now *time.Time) {
			ease(p, now, 16, linear)
			for range 100 {
				p.finished(endedBadly, *now)
			}
		}, limit: 1},
		{name: "some errors change nothing", do: func(p *pacer, now *time.Time) {
			ease(p, now, 16, linear)
			for range windowRemovals - 1 {
				p.finished(endedBadly, *now)
			}
		}, limit: 4},
		{name: "a pause does not end with the end of removals", do: func(p *pacer, now *time.Time) {
			p.pause("test")
			for range 50 {
				p.finished(endedWell, *now)
			}
		}, limit: 0},
		{name: "no answer is a pause", do: func(p *pacer, now *time.Time) { p.probed(0, false, *now) }, limit: 0},
		{name: "far too late is a pause", do: func(p *pacer, now *time.Time) { p.probed(time.Second, true, *now) }, limit: 0},
		{name: "one good answer does not end it", do: func(p *pacer, now *time.Time) {
			p.probed(0, false, *now)
			p.probed(10*ms, true, *now)
			p.probed(50*ms, true, *now)
			p.probed(10*ms, true, *now)
		}, limit: 0},
		{name: "two do", do: func(p *pacer, now *time.Time) {
			p.probed(0, false, *now)
			p.probed(10*ms, true, *now)
			p.probed(10*ms, true, *now)
		}, limit: 1},
		{name: "what is slow without us is the new quiet", do: func(p *pacer, now *time.Time) {
			p.probed(0, false, *now)
			for range relearn + recovered {
				p.probed(100*ms, true, *now)
			}
		}, limit: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := noon()
			p := newPacer(16, steady(quietProbes, 10*ms), 0, now)
			tt.do(p, &now)
			if p.trying {
				p.limit = p.limits[p.home]
			}
			if p.limit != tt.limit || p.gap != tt.gap {
				t.Errorf("limit %d, gap %v; want %d, %v", p.limit, p.gap, tt.limit, tt.gap)
			}
		})
	}
}

func TestPacerQuiet(t *testing.T) {
	for _, tt := range []struct {
		name    string
		samples []time.Duration
		want    time.Duration
	}{
		{"none", nil, leastQuiet},
		{"quicker than noise", steady(12, 100*time.Microsecond), leastQuiet},
		{"the slowest", []time.Duration{2 * ms, 9 * ms, 3 * ms}, 9 * ms},
		{"not an outlier", []time.Duration{2 * ms, 90 * ms, 3 * ms, 4 * ms, 5 * ms, 6 * ms, 7 * ms}, 50 * ms},
	} {
		if got := newPacer(1, tt.samples, 0, noon()).quiet; got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A model is a runtime as two curves over the number of removals at a time.
type model struct {
	name string
	rate func(n float64) float64 // removals per second
	list func(n float64) float64 // how many times slower a list is
	// slack is how much longer the paced run may take. Where lists suffer the pace stays clear of the bound on purpose, and
	// where the rate falls with more at a time the climb has to be undone in long windows.
	slack float64
}

func models() []model {
	flat := func(float64) float64 { return 1 }
	return []model{
		{"parallel up to 6", func(n float64) float64 { return 25 * min(n, 6) }, flat, 1.1},
		{"one after the other", func(float64) float64 { return 80 }, flat, 1.1},
		{"thrashes beyond 5", func(n float64) float64 { return 25*min(n, 5) - 4*max(0, n-5) }, flat, 1.5},
		{"saturates softly", func(n float64) float64 { return 200 * (1 - math.Exp(-n/4)) }, flat, 1.1},
		{"lists suffer", func(n float64) float64 { return 25 * min(n, 12) }, func(n float64) float64 { return 1 + 0.1*n }, 1.7},
		{"lists suffer early", func(n float64) float64 { return 25 * min(n, 12) }, func(n float64) float64 { return 1 + 0.3*n }, 1.7},
	}
}

// simulate removes 2,000 with a limit, or by the pacer if it is 0, and returns the seconds it takes and by how much the
// slowest but one in a hundred lists of another client was slower than quiet.
func simulate(m model, fixed int) (seconds, p99 float64) {
	r := rand.New(rand.NewPCG(1, 2))
	quiet := func() float64 { return 8 + 2*r.Float64() } // in ms
	now, start := noon(), noon()
	p := newPacer(DefaultConcurrency, steady(quietProbes, 10*ms), 0, now)
	limit := func() float64 {
		if fixed > 0 {
			return float64(fixed)
		}
		return float64(p.limit)
	}
	var lists []float64
	done, part := 0, 0.0
	for step := 0; done < 2000 && step < 100_000; step++ {
		now = now.Add(10 * ms)
		if n := limit(); n > 0 {
			rate := m.rate(n)
			if fixed == 0 && p.gap > 0 {
				rate = min(rate, 1/p.gap.Seconds())
			}
			for part += rate / 100 * (0.9 + 0.2*r.Float64()); part >= 1; part-- {
				done++
				p.finished(endedWell, now)
			}
		}
		took := quiet() * m.list(limit())
		lists = append(lists, took/10)
		if step%5 == 0 {
			p.probed(time.Duration(took*float64(ms)), true, now)
		}
	}
	slices.Sort(lists)
	return now.Sub(start).Seconds(), lists[len(lists)*99/100]
}

// TestPacerAgainstFixed holds the pacer to its promise on models of runtimes: nearly the rate of the best fixed limit that
// keeps another client's lists under twice the quiet time, and never more than that.
func TestPacerAgainstFixed(t *testing.T) {
	for _, m := range models() {
		t.Run(m.name, func(t *testing.T) {
			best, at := math.Inf(1), 0
			for n := 1; n <= DefaultConcurrency; n++ {
				if s, p99 := simulate(m, n); p99 < 2 && s < best {
					best, at = s, n
				}
			}
			got, p99 := simulate(m, 0)
			t.Logf("best fixed: %d at a time, %.1f s; paced: %.1f s, lists %.2f times slower", at, best, got, p99)
			if p99 >= 2 {
				t.Errorf("lists become %.2f times slower", p99)
			}
			if got > best*m.slack {
				t.Errorf("it takes %.1f s; %d at a time take %.1f s", got, at, best)
			}
		})
	}
}
