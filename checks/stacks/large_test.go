package stacks

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// made returns f(0) to f(n-1), made as they are read.
func made(n int, f func(i int) []byte) io.Reader {
	r, w := io.Pipe()
	go func() {
		for i := range n {
			if _, err := w.Write(f(i)); err != nil {
				return
			}
		}
		w.Close()
	}()
	return r
}

// TestReadLarge reads hostile and large input to its end in bounded memory, and counts goroutines that are not kept.
func TestReadLarge(t *testing.T) {
	repeat := func(n int, head, text string) io.Reader {
		b := []byte(text)
		return io.MultiReader(strings.NewReader(head), made(n, func(int) []byte { return b }))
	}
	const start = "goroutine 1 [select]:\nmain.f(0x1)\n\t/x/main.go:5 +0x1d\n"
	block := strings.Repeat("0123456789abcde(", 4096)
	for name, test := range map[string]struct {
		r     io.Reader
		count int // of goroutines
		keeps int
		cut   string
		heap  int64 // MiB that are allocated in all, at most; 0: any number, since goroutines are kept
	}{
		"line of 65 MB":     {repeat(1000, "", block), 0, 0, "", 8},
		"quote without end": {repeat(500, `msg="goroutine 1 [select]:\n`, block), 1, 1, "no end", 8},
		"100,000 frames":    {repeat(1e5, start, start[22:]), 1, 1, "inside", 4},
		"journal's entry":   {repeat(500, "__CURSOR=x\nMESSAGE\n\xff\xff\xff\x7f\x00\x00\x00\x00", block), 0, 0, "", 8},
		"200,000": {made(200_000, func(i int) []byte {
			return fmt.Appendf(nil, "goroutine %d [select]:\nmain.(*T).f(0xc%09x)\n\t/x/main.go:5\n", i+1, i)
		}), 200_000, maxGoroutines, "50000 goroutines are counted but not kept", 0},
		"all different": {made(30_000, func(i int) []byte {
			return fmt.Appendf(nil, "goroutine %d [select]:\n%smain.f%d()\n\t/x/main.go:5\n"+
				"created by main.main\n\t/x/main.go:5 +0x1\n", i+1, strings.Repeat(start[22:], i%9), i)
		}), 30_000, 1000, "too many different stacks", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after, kept runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			dumps, _ := Read(t.Context(), "x", test.r)
			runtime.ReadMemStats(&after)
			runtime.GC()
			runtime.ReadMemStats(&kept)
			allocated := int64(after.TotalAlloc-before.TotalAlloc) >> 20
			held := (int64(kept.HeapAlloc) - int64(before.HeapAlloc)) >> 20
			if t.Logf("%d MiB allocated, %d kept", allocated, held); held > 24 || test.heap > 0 && allocated > test.heap {
				t.Errorf("%d MiB allocated, %d kept", allocated, held)
			}
			d := &Dump{}
			if len(dumps) > 0 {
				d = dumps[0]
			}
			if len(dumps) > 1 || d.Source.Goroutines != test.count || len(d.Goroutines) < test.keeps ||
				!strings.Contains(d.Source.Cut, test.cut) {
				t.Errorf("%d dumps, %d goroutines kept of %+v", len(dumps), len(d.Goroutines), d.Source)
			}
		})
	}
}
