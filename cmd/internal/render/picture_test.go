package render

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/plegbench"
)

func TestBars(t *testing.T) {
	g := newGlyphs(true)
	for _, tt := range []struct {
		share              float64
		bar, under, beyond string
	}{
		{-1, "", "............|", ""},
		{0, "", "............|", ""},
		{0.0001, "-", "............|", ""},
		{0.5, "###", "######......|", ""},
		{0.58, "###-", "######-.....|", ""},
		{1, "######", "############|", ""},
		{1.001, "######", "############|", "!"},
		{1.25, "######", "############|", "!!!"},
		{1000, "######", "############|", "!!>"},
	} {
		under, beyond := g.limitBar(tt.share, 16)
		got := []string{g.bar(tt.share, 1, 6), under, beyond}
		if diff := cmp.Diff([]string{tt.bar, tt.under, tt.beyond}, got); diff != "" {
			t.Errorf("share %v (-want +got):\n%s", tt.share, diff)
		}
	}
}

func TestHistogram(t *testing.T) {
	le := func(s float64) *float64 { return &s }
	buckets := []plegbench.Bucket{
		{LeSeconds: le(0.001)},
		{LeSeconds: le(0.002), Count: 1200},
		{LeSeconds: le(0.005)},
		{LeSeconds: le(0.01), Count: 1},
		{LeSeconds: le(0.02)},
		{LeSeconds: le(0.05)},
		{Count: 3},
	}
	p := newPage(&strings.Builder{}, Options{ASCII: true})
	p.histogram("Calls", buckets)
	want := `Calls
     <= 2ms  1,200  ` + strings.Repeat("#", 40) + `
     <= 5ms      0
    <= 10ms      1  -
        ...
  no answer      3  -
`
	if diff := cmp.Diff(want, string(p.bytes())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p = newPage(&strings.Builder{}, Options{})
	p.histogram("Calls", buckets[:1])
	if p.out.Len() > 0 {
		t.Errorf("a histogram of nothing: %q", p.out.String())
	}
}
