package journalfile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
)

// A Boot is one run of a machine, as far as files hold it.
type Boot struct {
	ID          ID
	First, Last uint64 // realtime of its first and last entry, microseconds since 1970
	Entries     int64
}

// Boots returns the boots that the file has entries of, by time. It looks at every entry that can be found.
func (f *File) Boots(ctx context.Context) ([]Boot, error) {
	if f.empty {
		return nil, ctx.Err()
	}
	const most = 1 << 16 // boots in one file; more are a sign of damage
	byID := make(map[ID]Boot)
	var err error
	_, faulted := f.protect(func() {
		w := newWalker(f.img, f.img.head.headerSize, f.img.size(), ignoreHoles)
		for n := 0; err == nil; n++ {
			if n&0xFFF == 0 {
				err = ctx.Err()
			}
			o, ok := w.next()
			if !ok {
				return
			}
			if o.kind != kindEntry {
				continue
			}
			t, id := f.img.realtime(o), f.img.boot(o)
			b, known := byID[id]
			if t == 0 || !known && len(byID) == most {
				continue // damaged
			}
			if !known {
				b = Boot{ID: id, First: t}
			}
			b.First, b.Last, b.Entries = min(b.First, t), max(b.Last, t), b.Entries+1
			byID[id] = b
		}
	})
	if faulted {
		err = ErrFault
	}
	if err != nil {
		return nil, fmt.Errorf("listing boots of %s: %w", f.path, err)
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b Boot) int {
		return cmp.Or(cmp.Compare(a.First, b.First), bytes.Compare(a.ID[:], b.ID[:]))
	}), nil
}
