package render

import (
	"math"
	"testing"
)

func TestFigures(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{duration(-1), "-"},
		{duration(math.NaN()), "-"},
		{duration(242), "4m2s"},
		{size(47104), "46" + glue + "KiB"},
		{plural(2, "relist"), "2" + glue + "relists"},
		{times(0.05), "0.05x"},
		{times(1.44), "1.4x"},
		{times(12300), "12,300x"},
		{times(math.Inf(1)), ">1e9x"},
		{optional(nil, duration), "-"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
