package stacks

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
)

// Pictures returns all known ways to hang, in the order of the documentation.
func Pictures() []*Picture { return tables().Pictures }

// pictures returns the known ways to hang that the dump shows.
func (a *analysis) pictures(holders []checks.StackHolder) []checks.KnownPicture {
	blocks := map[int]bool{} // ids of goroutines that others wait for
	for _, h := range holders {
		blocks[h.Goroutine] = true
	}
	var out []checks.KnownPicture
	for _, p := range tables().Pictures {
		if role := a.dump.Source.Role; role != "" && role != p.Role {
			continue
		}
		var ids []int
		for i, at := range a.at {
			g := &a.dump.Goroutines[i]
			if a.idle[i] || !slices.Contains(at.pictures, p) {
				continue
			}
			switch word, _ := a.waitsFor(i); {
			case len(p.Words) > 0 && !slices.Contains(p.Words, word):
			case blocks[g.ID], !p.Blocks && (p.Waits || g.Wait >= time.Minute || a.standsStill(i)):
				ids = append(ids, g.ID)
			}
		}
		if len(ids) > 0 {
			out = append(out, checks.KnownPicture{
				Pattern: p.ID, Why: p.Title + ": " + p.Means, Links: slices.Clone(p.Links), Source: a.source,
				Goroutines: ids[:min(len(ids), maxIDs)], Causes: slices.Clone(p.Causes),
			})
		}
	}
	return out
}
