package stacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
)

// differ is cmp.Diff, quick for equal lists.
func differ(want, got []Goroutine) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

// A dump that is cut anywhere is read as far as it goes, and so is one of which only the end is left.
func TestReadCut(t *testing.T) {
	text := realDump(t)
	whole := readAll(t, "x", text)[0].Goroutines
	record := logrus(text)
	for n := 997; n < strings.LastIndex(text, "\n\ngoroutine"); n += 5 * 997 {
		d := readAll(t, "x", text[:n])[0]
		seen := strings.Count("\n"+text[:n], "]:\n")
		if got := len(d.Goroutines); got != seen || d.Source.Goroutines != seen {
			t.Fatalf("cut at %d: %d goroutines, %d counted, of %d", n, got, d.Source.Goroutines, seen)
		}
		if diff := differ(whole[:seen-1], d.Goroutines[:seen-1]); diff != "" {
			t.Fatalf("cut at %d: %s", n, diff)
		}
		last, full := d.Goroutines[seen-1].Stack.Frames, whole[seen-1].Stack.Frames
		if diff := cmp.Diff(full[:len(last):len(last)], last); len(last) > 0 && diff != "" {
			t.Fatalf("cut at %d: %s", n, diff)
		}
		if len(last) < len(full) && !strings.HasPrefix(d.Source.Cut, "it ends inside goroutine ") {
			t.Fatalf("cut at %d: %q", n, d.Source.Cut)
		}
		if d := readAll(t, "x", record[:n])[0]; d.Source.Cut == "" {
			t.Fatalf("record cut at %d: no word of it", n)
		}
		for _, end := range []string{text[n:], record[n:]} {
			d = readAll(t, "x", end)[0]
			if diff := differ(whole[len(whole)-len(d.Goroutines):], d.Goroutines); diff != "" {
				t.Fatalf("from %d: %s", n, diff)
			}
			begin, _, _ := strings.Cut(strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(end), "\ngoroutine ")
			if d.Source.Cut == "" && strings.Contains(begin, "\n\t") {
				t.Fatalf("from %d: its beginning is missing, and Cut is empty", n)
			}
		}
	}
}

func TestReadSeveral(t *testing.T) {
	first := realDump(t)
	want := readAll(t, "x", first)[0].Goroutines
	// The goroutine that writes a dump is another each time.
	second := strings.Replace(first, "goroutine 35 [running]", "goroutine 4711 [running]", 1)
	record := func(dump string) string { return short + logrus(dump) + "\n" + foreign }
	crash := "panic: x\n\ngoroutine 7 [running]:\n" +
		"main.f(...)\n\t/src/x/main.go:5\nmain.main()\n\t/src/x/main.go:9 +0x1d\n"
	crio := prefixed(strings.ReplaceAll(short, "containerd[812]", "crio[99]"))
	for name, log := range map[string]string{
		"one behind the other": first + "\n" + second,
		"records":              record(first) + record(second),
		"lines of a journal":   each(first, prefixed(short)) + each(second, prefixed(short)),
		"of two senders":       each(first, prefixed(short)) + each(second, crio),
		"first has no end":     first[:len(first)-300] + "\n" + second,
		"then another log":     first + "\n" + record(second),
		"beside crashes":       crash + "exit 2\n" + first + "\nbye\n" + crash + "x\n" + second,
	} {
		var got []int
		dumps := readAll(t, "x", log)
		for _, d := range dumps {
			if d.Source.Goroutines != 1 {
				got = append(got, d.Source.Goroutines)
			}
		}
		if diff := cmp.Diff([]int{len(want), len(want)}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
			continue
		}
		last := dumps[len(dumps)-1].Goroutines
		if diff := cmp.Diff(want[1:], last[1:]); diff != "" || last[0].ID != 4711 {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// Of two dumps that are written at the same time, one is read.
	var mixed strings.Builder
	for line := range strings.SplitSeq(first, "\n") {
		mixed.WriteString(short + line + "\n" + crio(line))
	}
	for _, d := range readAll(t, "x", mixed.String()) {
		if !strings.Contains(d.Source.Cut, "another process wrote a dump at the same time") {
			t.Errorf("mixed: %+v", d.Source)
		}
	}
}

// The forms that Go 1.12 to 1.26 write.
func TestReadGoroutines(t *testing.T) {
	const frame = "main.f(0x1)\n\t/x/main.go:5 +0x1d\n"
	for text, want := range map[string]string{
		"[select, 5 minutes]:\n" + frame:                            "select 5m0s main.f:5",
		"[running, locked to thread]:\n" + frame:                    "running 0s main.f:5",
		"[syscall, 62 minutes, locked to thread]:\n" + frame:        "syscall 1h2m0s main.f:5",
		"[chan receive (nil chan)]:\n" + frame:                      "chan receive (nil chan) 0s main.f:5",
		"gp=0x1 m=4 mp=0x2 [select (no cases)]:\n" + frame:          "select (no cases) 0s main.f:5",
		"[select (scan), synctest group 7]:\n" + frame:              "select 0s main.f:5",
		"[sync.Mutex.Lock (durable), synctest bubble 7]:\n" + frame: "sync.Mutex.Lock 0s main.f:5",
		"[sleep]:\n" + frame + "...23 frames elided...\n" + frame:   "sleep 0s main.f:5 main.f:5",
		"gp=0xc000003dc0 m=nil [GC worker (idle)]:\nmain.f(0x1)\n\t/x/main.go:5 +0x1d fp=0xc0 sp=0xc1 pc=0x1\n": "" +
			"GC worker (idle) 0s main.f:5",
		"[running]:\n\tgoroutine running on other thread; stack unavailable\n" +
			"created by main.g in goroutine 1\n\t/x/main.go:9 +0x1\n": "running 0s",
		"[sleep]:\n" + frame + "...additional frames elided...\ncreated by main.g\n\t/x/main.go:9 +0x1\n": "" +
			"sleep 0s main.f:5",
		"[syscall]:\nnon-Go function at pc=7f0\n" + frame + "created by main.g.func1.2 in goroutine 12\n" +
			"\t/x/main.go:9 +0x1\n": "syscall 0s main.f:5",
		"[select]:\nsync.runtime_SemacquireMutex(0xc000010004?, 0x30?, 0x1?)\n\t/go/runtime/sema.go:95 +0x25\n" +
			"gopkg.in/yaml%2ev3.(*T[...]).Lock(...)\n\t<autogenerated>:1\n" +
			"example.com/x.V.m({0xc000, {0x2, ...}}, _)\n\t/x.go:3 +0x1\n" +
			"example.com/x.f({{0x1}, 0x2})\n\t/x.go:4 +0x1\n" +
			"syscall.Syscall6({}, 0xf7, _, 0x1, ...)\n\t/asm.s:5 +0x1\n": "select 0s sync.runtime_SemacquireMutex:95 " +
			"0xc000010004 gopkg.in/yaml.v3.(*T[...]).Lock:1 example.com/x.V.m:3 0xc000 example.com/x.f:4 syscall.Syscall6:5",
	} {
		dumps := readAll(t, "x", "goroutine 4 [select]:\nmain.main()\n\t/x/main.go:5 +0x1d\n\ngoroutine 5 "+text)
		all := dumps[len(dumps)-1].Goroutines
		g := all[len(all)-1]
		got := fmt.Sprint(g.State, " ", g.Wait)
		for i, f := range g.Stack.Frames {
			got += fmt.Sprintf(" %s:%d", f.Func, f.Line)
			if i < len(g.Addrs) && g.Addrs[i] != 0 {
				got += fmt.Sprintf(" %#x", g.Addrs[i])
			}
		}
		writes := strings.HasPrefix(text, "[running, ") // another dump begins with it
		if got != want || g.ID != 5 || writes != (len(all) == 1) {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestReadOwn reads a dump of the Go release that runs the test.
func TestReadOwn(t *testing.T) {
	var mu sync.Mutex
	mu.Lock()
	defer mu.Unlock()
	go func() {
		runtime.LockOSThread()
		mu.Lock()
		defer mu.Unlock()
	}()
	buf := make([]byte, 1<<20)
	for !bytes.Contains(buf, []byte("[sync.Mutex.Lock")) { // until it waits
		time.Sleep(time.Millisecond)
		buf = buf[:runtime.Stack(buf[:cap(buf)], true)]
	}
	d := readAll(t, "x", string(buf))[0]
	waits := slices.ContainsFunc(d.Goroutines, func(g Goroutine) bool {
		return g.State == "sync.Mutex.Lock" && len(g.Addrs) > 0
	})
	if d.Source.Cut != "" || len(d.Goroutines) != bytes.Count(buf, []byte("]:\n")) || !waits {
		t.Errorf("%+v\n%s", d, buf)
	}
}

func TestReadNames(t *testing.T) {
	const dump = "goroutine 1 [select]:\nmain.main()\n\t/go/src/k8s.io/kubernetes/cmd/kubelet/kubelet.go:5 +0x1\n"
	for name, want := range map[string]string{
		"/tmp/containerd.812.stacks.log":                  "runtime containerd 812 -",
		"goroutine-stacks-2026-11-23T051745+0200.log":     "kubelet kubelet 0 2026-11-23 03:17:45",
		"crio-goroutine-stacks-2026-11-23T031745Z.log.gz": "kubelet kubelet 0 2026-11-23 03:17:45",
		"stdin": "kubelet kubelet 0 -",
	} {
		s := readAll(t, name, dump)[0].Source
		at := "-"
		if s.CapturedAt != nil {
			at = s.CapturedAt.UTC().Format(time.DateTime)
		}
		if got := fmt.Sprintf("%s %s %d %s", s.Role, s.Process, s.PID, at); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	id := strings.Repeat("0a", 32)
	shims := strings.ReplaceAll(dump, "k8s.io/kubernetes/cmd/kubelet", "x/cmd/containerd-shim-runc-v2")
	want := checks.StackSource{
		Name: "x", Process: "containerd-shim-runc-v2", Role: "shim", PID: 71, ObjectID: id, Goroutines: 1,
	}
	for _, fields := range []string{
		" namespace=k8s.io path=/run/k8s.io/" + id + " pid=71 runtime=x",
		`,"namespace":"k8s.io","path":"/run/k8s.io/` + id + `","pid":71,"runtime":"x"}`,
	} {
		got := readAll(t, "x", short+logrus(shims)+fields+"\n")[0].Source
		got.CapturedAt = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s\n%s", fields, diff)
		}
	}
}

func TestReadNoDump(t *testing.T) {
	for text, want := range map[string]string{
		"": "no goroutine dump found",
		"Nov 23 03:17:45 node-1 kubelet[9]: goroutine 5 left\n":  "no goroutine dump found",
		`{"MESSAGE":null,"_PID":"812"}`:                          "--all",
		"goroutine profile: total 3\n2 @ 0x1 0x2\n#\t0x1\tmain.": "debug=2",
		"\n\x00\x32\x07samples\x32\x09goroutine":                 "debug=2",
	} {
		dumps, err := Read(t.Context(), "x", strings.NewReader(text))
		if len(dumps) > 0 || !errors.Is(err, ErrNoDump) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, "x", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	broken := io.MultiReader(strings.NewReader(realDump(t)[:50_000]), iotest.ErrReader(errors.New("it broke")))
	dumps, err := Read(t.Context(), "x", broken)
	if len(dumps) != 1 || err == nil || !strings.Contains(dumps[0].Source.Cut, "it broke") {
		t.Errorf("%d dumps, %v", len(dumps), err)
	}
}

func FuzzRead(f *testing.F) {
	text := realDump(f)
	for _, w := range wrappings(text[:5000]) {
		f.Add([]byte(w[0]))
	}
	f.Add([]byte(text[3000:9000]))
	f.Fuzz(func(t *testing.T, b []byte) {
		dumps, err := Read(t.Context(), "x", bytes.NewReader(b))
		if len(dumps) == 0 && err == nil {
			t.Fatal("neither a dump nor an error")
		}
		for _, d := range dumps {
			if len(d.Goroutines) != d.Source.Goroutines && d.Source.Cut == "" || d.Source.Goroutines == 0 {
				t.Fatalf("%d goroutines, %+v", len(d.Goroutines), d.Source)
			}
			for _, g := range d.Goroutines {
				if g.Stack == nil || len(g.Addrs) > len(g.Stack.Frames) || g.State == "" {
					t.Fatalf("%+v", g)
				}
				if slices.ContainsFunc(g.Stack.Frames, func(f Frame) bool { return f.Func == "" }) {
					t.Fatalf("%+v has a function without a name", g)
				}
			}
		}
	})
}
