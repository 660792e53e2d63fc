package journalfile

import (
	"context"
	"fmt"
)

// A Boot is one run of a machine, as far as a file holds it.
type Boot struct {
	ID    ID
	First uint64 // realtime of its first entry, microseconds since 1970
}

// Boots returns the boots that the file has entries of, in no order. It looks at every entry that can be found.
func (f *File) Boots(ctx context.Context) ([]Boot, error) {
	const most = 1 << 16 // boots in one file; more are a sign of damage
	first := map[ID]uint64{}
	err := ctx.Err()
	_, faulted := f.protect(func() {
		w := newWalker(f.img, f.img.head.headerSize, f.img.size(), ignoreHoles)
		for n := 0; err == nil && !f.empty; n++ {
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
			if was, known := first[id]; t != 0 && (known && t < was || !known && len(first) < most) {
				first[id] = t
			}
		}
	})
	if faulted {
		err = ErrFault
	}
	if err != nil {
		return nil, fmt.Errorf("listing boots of %s: %w", f.path, err)
	}
	var boots []Boot
	for id, t := range first {
		boots = append(boots, Boot{id, t})
	}
	return boots, nil
}
