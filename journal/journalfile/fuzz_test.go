package journalfile

import "testing"

// FuzzOpenSearch does with any bytes whatever can be done with a file. It must end, without a panic.
func FuzzOpenSearch(f *testing.F) {
	for _, compact := range []bool{false, true} {
		for _, pack := range []byte{0, objXZ, objLZ4, objZSTD} {
			b := sample(compact, compact, pack, 12).b
			f.Add(b)
			f.Add(b[:len(b)/2])
			f.Add(append(b[:len(b):len(b)], make([]byte, 512)...))
		}
	}
	f.Add([]byte("LPKSHHRH"))
	f.Add(make([]byte, 300))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := fromBytes(b)
		if err != nil {
			return
		}
		read := func(e *Entry) bool {
			unit(e)
			if e.Offset >= uint64(len(b)) {
				t.Errorf("entry at %d of %d bytes", e.Offset, len(b))
			}
			return true
		}
		for _, q := range []Query{{Match: pleg}, {}, {Since: t0 + 3e6, Until: t0 + 4e6, Match: pleg}} {
			stats, err := file.Search(t.Context(), q, read)
			if err != nil {
				t.Error(err)
			}
			for _, r := range stats.Unreadable {
				if r.Offset < 0 || r.Bytes <= 0 {
					t.Errorf("range %+v", r)
				}
			}
		}
		// The file may be damaged: any error will do.
		_, _ = file.Boots(t.Context())
		tail := tailed{f: file}
		_, _ = tail.advance(&Query{}, nil)
	})
}
