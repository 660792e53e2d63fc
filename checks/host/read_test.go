package host

import (
	"bytes"
	"strings"
	"testing"
)

func TestParseUint(t *testing.T) {
	tests := []struct {
		in   string
		want uint64
		err  bool
	}{
		{"max\n", 0, false},
		{"4194304\n", 4194304, false},
		{"18446744073709551615", 18446744073709551615, false},
		{"-1\n", 0, true},
		{"", 0, true},
		{"\x1b[31m", 0, true},
	}
	for _, tt := range tests {
		got, err := parseUint([]byte(tt.in))
		if got != tt.want || (err != nil) != tt.err {
			t.Errorf("parseUint(%q) = %d, %v", tt.in, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "\x1b") {
			t.Errorf("parseUint(%q): the error %v holds a control character", tt.in, err)
		}
	}
}

func TestKeyed(t *testing.T) {
	const stat = "nr_descendants 612\nnr_dying_descendants 7\nlast 9"
	for key, want := range map[string]uint64{"nr_descendants": 612, "nr_dying_descendants": 7, "last": 9} {
		if got, ok := keyed([]byte(stat), key); !ok || got != want {
			t.Errorf("keyed %s = %d, %v; want %d", key, got, ok, want)
		}
	}
	for _, in := range []string{"", "nr_descendants x\n", "nr_descendants\n", "nr 5\n", "nr_descendants -1\n"} {
		if got, ok := keyed([]byte(in), "nr_descendants"); ok {
			t.Errorf("keyed of %q = %d", in, got)
		}
	}
}

func FuzzKeyed(f *testing.F) {
	f.Add([]byte("nr_periods 10\nnr_throttled 3\nthrottled_usec 5\n"), "nr_throttled")
	f.Add([]byte("populated 1\nfrozen 0\n"), "frozen")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		if _, ok := keyed(b, key); ok && !bytes.Contains(b, []byte(key+" ")) {
			t.Errorf("keyed finds %q in %q", key, b)
		}
	})
}
