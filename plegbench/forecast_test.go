package plegbench

import (
	"math/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/internal/testkit"
)

// growing is a series of n samples a second apart with the given sizes and list times.
func growing(n int, bytes func(i int) int, elapsed func(i int) time.Duration) []Sample {
	samples := make([]Sample, n)
	for i := range samples {
		samples[i] = sampleOf(time.Duration(i)*time.Second, 0, elapsed(i))
		samples[i].Containers.Bytes = bytes(i)
	}
	return samples
}

func TestForecast(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	constant := func(int) int { return 1 << 20 }
	quick := func(int) time.Duration { return 10 * time.Millisecond }
	noisy := func(int) time.Duration { return time.Duration(10+rng.Intn(20)) * time.Millisecond }
	leak := func(i int) int { return 1<<20 + i*1000 }
	limit := float64(crictl.DefaultMessageLimit)
	tests := []struct {
		name    string
		samples []Sample
		want    Forecast
	}{
		{"too short", growing(5, leak, quick), Forecast{}},
		{"a leak", growing(11, leak, noisy), Forecast{
			BytesPerSecond: new(1000.0), SecondsToLimit: new((limit - 1<<20 - 10_000) / 1000),
		}},
		{"one rollout", growing(60, func(i int) int { return i / 30 * 50_000 }, quick), Forecast{}},
		{"past the limit", growing(11, func(i int) int { return 17<<20 + i*1000 }, quick), Forecast{
			BytesPerSecond: new(1000.0), SecondsToLimit: new(0.0),
		}},
		// The age is 100 s and grows twice as fast as the lists, which take 10 ms more each second.
		{"slower lists", growing(11, constant,
			func(i int) time.Duration { return time.Duration(i) * 10 * time.Millisecond }), Forecast{
			SecondsToThreshold: new((180 - 100) / 0.02),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &Summary{
				ThresholdSeconds: 180, ResponseRPC: "ListContainers", ResponseLimitBytes: crictl.DefaultMessageLimit,
				ProjectedAgeSeconds: new(100.0), BytesPerContainer: new(1000.0), ContainersAtLimit: new(16777),
			}
			tt.want.BytesPerContainer, tt.want.ContainersAtLimit = s.BytesPerContainer, s.ContainersAtLimit
			testkit.Equal(t, "forecast", tt.want, ForecastOf(tt.samples, s), withinMillionth)
		})
	}
	testkit.Equal(t, "without a summary", Forecast{}, ForecastOf(growing(20, leak, quick), nil))
}

var withinMillionth = cmpopts.EquateApprox(1e-6, 1e-6)

// Lists that only fluctuate must hardly ever look like a trend, and a clear trend always.
func TestForecastOfNoise(t *testing.T) {
	s := &Summary{ThresholdSeconds: 180, ResponseRPC: "ListContainers", ResponseLimitBytes: crictl.DefaultMessageLimit}
	wrong, missed := 0, 0
	const rounds = 500
	for seed := range int64(rounds) {
		rng := rand.New(rand.NewSource(seed))
		n := 6 + rng.Intn(55)
		noise := func(int) time.Duration { return time.Duration(rng.ExpFloat64() * float64(20*time.Millisecond)) }
		trend := func(i int) time.Duration { return noise(i)/2 + time.Duration(i)*100*time.Millisecond }
		constant := func(int) int { return 1000 }
		if ForecastOf(growing(n, constant, noise), s).SecondsToThreshold != nil {
			wrong++
		}
		if ForecastOf(growing(n, constant, trend), s).SecondsToThreshold == nil {
			missed++
		}
	}
	if wrong > rounds/50 || missed > 0 {
		t.Errorf("of %d: noise taken for growth %d times, growth missed %d times", rounds, wrong, missed)
	}
}
