package journalfile

import (
	"cmp"
	"context"
)

// Boots returns the boots that the file has records of, with the time of the first of each, in microseconds since 1970.
func (f *File) Boots(ctx context.Context) (map[ID]uint64, error) {
	const most = 1 << 16 // boots in one file; more are a sign of damage
	first := map[ID]uint64{}
	_, err := f.Search(ctx, Query{}, func(e *Entry) bool {
		if e.Realtime != 0 {
			id := f.img.boot(e.obj)
			first[id] = min(cmp.Or(first[id], e.Realtime), e.Realtime)
		}
		return len(first) < most
	})
	return first, err
}
