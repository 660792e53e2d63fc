package journalfile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
)

// A Boot is one run of a machine, as far as files hold it.
type Boot struct {
	ID          ID
	First, Last uint64 // realtime of its first and last entry, microseconds since 1970
	Entries     int64
}

// Boots returns the boots that the file has entries of, by time. It asks the index for the values of _BOOT_ID; where that
// is damaged it looks at every entry that can be found.
func (f *File) Boots(ctx context.Context) ([]Boot, error) {
	if f.empty {
		return nil, ctx.Err()
	}
	var boots []Boot
	whole := false
	if _, faulted := f.protect(func() { boots, whole = f.bootsByIndex() }); faulted || !whole {
		var err error
		if boots, err = f.bootsByEntries(ctx); err != nil {
			return nil, fmt.Errorf("listing boots of %s: %w", f.path, err)
		}
	}
	sortBoots(boots)
	return boots, nil
}

func sortBoots(boots []Boot) {
	slices.SortFunc(boots, func(a, b Boot) int {
		return cmp.Or(cmp.Compare(a.First, b.First), bytes.Compare(a.ID[:], b.ID[:]))
	})
}

// bootsByIndex is not whole if the boots do not account for all entries.
func (f *File) bootsByIndex() (boots []Boot, whole bool) {
	m := f.img
	var sum uint64
	whole = m.values("_BOOT_ID", func(o object) bool {
		b, err := f.unpack.payload(m, o)
		var id ID
		text, ok := bytes.CutPrefix(b, []byte("_BOOT_ID="))
		if n, bad := hex.Decode(id[:], text[:min(len(text), 32)]); err != nil || !ok || bad != nil || n != 16 {
			return true
		}
		l := m.dataList(o)
		first, ok1 := l.entry(0)
		last, ok2 := l.entry(l.n - 1)
		if !ok1 || !ok2 || m.boot(first) != id || m.boot(last) != id {
			return true
		}
		sum += l.n
		boots = append(boots, Boot{ID: id, First: m.realtime(first), Last: m.realtime(last), Entries: int64(l.n)})
		return true
	})
	return boots, whole && sum == m.head.Entries
}

func (f *File) bootsByEntries(ctx context.Context) ([]Boot, error) {
	const most = 1 << 16 // boots in one file; more are no boots but damage
	byID := make(map[ID]*Boot)
	var order []*Boot
	var err error
	_, faulted := f.protect(func() {
		w := newWalker(f.img, f.img.head.headerSize, f.img.size(), ignoreHoles)
		for n := 0; ; n++ {
			if n&0xFFF == 0 {
				if err = ctx.Err(); err != nil {
					return
				}
			}
			o, ok := w.next()
			if !ok {
				return
			}
			if o.kind != kindEntry {
				continue
			}
			t, id := f.img.realtime(o), f.img.boot(o)
			if t == 0 {
				continue // damaged, perhaps its boot too
			}
			b := byID[id]
			if b == nil {
				if len(order) == most {
					return
				}
				b = &Boot{ID: id, First: t}
				byID[id] = b
				order = append(order, b)
			}
			b.First, b.Last = min(b.First, t), max(b.Last, t)
			b.Entries++
		}
	})
	if faulted {
		err = ErrFault
	}
	var boots []Boot
	for _, b := range order {
		boots = append(boots, *b)
	}
	return boots, err
}
