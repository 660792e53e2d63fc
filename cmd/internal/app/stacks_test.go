package app_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/redact"
)

// TestFromBefore reads a bundle with two dumps of one process: the earlier is evidence of what stands still, without
// which a wait for the disk that has no time means nothing.
func TestFromBefore(t *testing.T) {
	const dump = `goroutine 7 [semacquire]:
sync.(*Mutex).lockSlow(0xc0000010b8)
	mutex.go:1
go.etcd.io/bbolt.(*DB).beginRWTx(0xc000001000)
	db.go:1
main.main()
	main.go:1

goroutine 8 [syscall]:
syscall.Fdatasync(0x3)
	syscall.go:1
go.etcd.io/bbolt.(*DB).Update(0xc000001000)
	db.go:2
main.f()
	main.go:1
`
	pack := func(files map[string]string) string {
		name := filepath.Join(t.TempDir(), "x.tar.zst")
		out, err := bundle.Create(name)
		must(t, err)
		defer out.Close()
		w, err := bundle.NewWriter(out, bundle.Options{Redactor: redact.New(redact.Standard, nil), Now: time.Now})
		must(t, err)
		for path, text := range files {
			must(t, w.Add(path, "test", redact.Text, strings.NewReader(text)))
		}
		_, err = w.Close(checks.Header{})
		must(t, err)
		return name
	}
	files := map[string]string{
		bundle.StacksDir + "runtime-9.txt": dump,
		bundle.SourcesName: `{
			"runtime-9.txt":        {"pid": 9, "role": "runtime"},
			"runtime-9-before.txt": {"pid": 9, "role": "runtime"}
		}`,
	}
	for _, holders := range []int{0, 1} {
		o := kdiag(t.Context(), "stacks", "--from", pack(files), "-o", "json")
		r := decode[checks.StacksReport](t, o)
		if len(r.Holders) != holders || holders == 1 && len(r.Sources) != 1 {
			t.Errorf("holders %+v of %+v, want %d", r.Holders, r.Sources, holders)
		}
		files[bundle.StacksDir+"runtime-9-before.txt"] = dump
	}
}
