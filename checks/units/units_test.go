package units

import (
	"math"
	"testing"
	"time"

	"github.com/kdiag/kdiag/internal/testkit"
)

func TestFormats(t *testing.T) {
	for want, got := range map[string]string{
		"0s":  Duration(-1),
		"1us": Duration(time.Nanosecond), "368us": Duration(368 * time.Microsecond),
		"1ms":   Duration(time.Millisecond),
		"6.4ms": Duration(6400 * time.Microsecond), "10ms": Duration(9960 * time.Microsecond),
		"789ms": Duration(789 * time.Millisecond),
		"1.2s":  Duration(1210 * time.Millisecond), "5s": Duration(5 * time.Second),
		"59.9s": Duration(59900 * time.Millisecond),
		"1m":    Duration(time.Minute), "2m4s": Duration(124 * time.Second), "5h3m": Duration(303 * time.Minute),
		"1h":   Duration(time.Hour),
		"2.5s": Seconds(2.5), "3d4h": Duration(76 * time.Hour), "365d": Seconds(math.Inf(1)),
		"999": Number(999), "1,234": Number(1234), "-20,000": Number(-20000),
		"18,446,744,073,709,551,615": Number(uint64(math.MaxUint64)),
		"1 container":                Count(1, "container"), "20,000 containers": Count(20000, "container"),
		"0 sandboxes": Count(0, "sandbox"),
		"once":        Times(1), "twice": Times(2), "3 times": Times(3),
		"812 B": Size(812), "40 KiB": Size(40 << 10), "5.3 MiB": Size(5557452),
		"16 MiB": Size(16 << 20), "93.5 GiB": Size(uint64(93.5 * (1 << 30))), "3 TiB": Size(uint64(3 << 40)),
		"69%": Percent(0.69), "0.4%": Percent(0.004), "0%": Percent(0), "100%": Percent(1),
		"": List(nil), "a": List([]string{"a"}), "a, b and c": List([]string{"a", "b", "c"}),
	} {
		testkit.Equal(t, want, want, got)
	}
	testkit.Equal(t, "NaN seconds", time.Duration(0), ToDuration(math.NaN()))
}
