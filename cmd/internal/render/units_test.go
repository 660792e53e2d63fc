package render

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnits(t *testing.T) {
	spaced := func(s string) string { return strings.ReplaceAll(s, glue, " ") }
	tests := []struct{ got, want string }{
		{duration(0), "0 ms"},
		{duration(-1), "-"},
		{duration(math.NaN()), "-"},
		{duration(0.0000034), "3.4 us"},
		{duration(0.00034), "340 us"},
		{duration(0.0009996), "1.0 ms"},
		{duration(0.0012), "1.2 ms"},
		{duration(0.00996), "10 ms"},
		{duration(0.9994), "999 ms"},
		{duration(0.9996), "1.0 s"},
		{duration(3.44), "3.4 s"},
		{duration(59.94), "59.9 s"},
		{duration(59.96), "1m00s"},
		{duration(242), "4m02s"},
		{duration(3599.6), "1h00m"},
		{duration(11100), "3h05m"},
		{duration(86400 * 1.5), "1d12h"},
		{duration(math.MaxFloat64), "years"},
		{size(0), "0 B"},
		{size(1023), "1023 B"},
		{size(1024), "1.0 KiB"},
		{size(47104), "46.0 KiB"},
		{size(1024*1024 - 1), "1.0 MiB"},
		{size(7025459), "6.7 MiB"},
		{size(16 << 20), "16.0 MiB"},
		{size(5 << 40), "5120.0 GiB"},
		{count(0), "0"},
		{count(999), "999"},
		{count(1000), "1,000"},
		{count(-20000), "-20,000"},
		{count(1234567), "1,234,567"},
		{percent(0), "0%"},
		{percent(0.0001), "<1%"},
		{percent(0.67), "67%"},
		{percent(1.344), "134%"},
		{percent(28), "28x"},
		{times(0.05), "0.05x"},
		{times(1.44), "1.4x"},
		{times(12300), "12,300x"},
		{times(math.Inf(1)), ">1e9x"},
		{plural(1, "RPC"), "1 RPC"},
		{plural(0, "RPC"), "0 RPCs"},
		{optional(nil, duration), "-"},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, spaced(tt.got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
