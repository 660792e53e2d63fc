package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
