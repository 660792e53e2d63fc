package render

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/plegbench"
)

func TestLimitBar(t *testing.T) {
	g := newGlyphs(true)
	tests := []struct {
		share         float64
		under, beyond string
	}{
		{0, "............|", ""},
		{0.01, "............|", ""},
		{0.5, "######......|", ""},
		{0.55, "######-.....|", ""},
		{0.99, "###########-|", ""},
		{1, "############|", ""},
		{1.001, "############|", "!"},
		{1.25, "############|", "!!!"},
		{1.3, "############|", "!!>"},
		{1000, "############|", "!!>"},
	}
	for _, tt := range tests {
		under, beyond := g.limitBar(tt.share, 16)
		if diff := cmp.Diff([]string{tt.under, tt.beyond}, []string{under, beyond}); diff != "" {
			t.Errorf("share %v (-want +got):\n%s", tt.share, diff)
		}
	}
}

func TestBar(t *testing.T) {
	g := newGlyphs(true)
	tests := []struct {
		v, full float64
		want    string
	}{
		{0, 10, ""},
		{-1, 10, ""},
		{1, 0, ""},
		{0.001, 10, "-"},
		{5, 10, "###"},
		{5.8, 10, "###-"},
		{10, 10, "######"},
		{99, 10, "######"},
	}
	for _, tt := range tests {
		if got := g.bar(tt.v, tt.full, 6); got != tt.want {
			t.Errorf("bar(%v, %v) = %q, want %q", tt.v, tt.full, got, tt.want)
		}
	}
}

func TestSeries(t *testing.T) {
	g := newGlyphs(true)
	tests := []struct {
		name   string
		values []float64
		width  int
		want   string
	}{
		{"none", nil, 10, ""},
		{"from zero to the largest", []float64{0, 1, 2, 3, 4, 5, 6, 7, 8}, 10, "__.:-=+*#"},
		{"steady", []float64{3, 3, 3}, 10, "###"},
		{"all zero", []float64{0, 0}, 10, "__"},
		{"a lost sample", []float64{8, -1, 8}, 10, "#x#"},
		{"all lost", []float64{-1, -1}, 10, "xx"},
		{"the worst of each column", []float64{1, 8, 1, 1, -1, 1}, 3, "#_x"},
	}
	for _, tt := range tests {
		if got := g.series(tt.values, tt.width); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
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
     to 2ms  1,200  ` + strings.Repeat("#", 40) + `
     to 5ms      0
    to 10ms      1  -
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
