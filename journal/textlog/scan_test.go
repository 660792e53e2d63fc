package textlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

const line = "E0703 19:59:01.292918 1946644 kubelet.go:1879] skipping pod synchronization - PLEG is not healthy: pleg was last seen active 3m36.4s ago; threshold is 3m0s\n"

func TestDamagedCompression(t *testing.T) {
	text := dull(4 << 20)
	copy(text, line)
	var z bytes.Buffer
	w, err := zstd.NewWriter(&z, zstd.WithWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"gzip": gzipped(t, text), "zstd": z.Bytes()} {
		got, st := count(t, bytes.NewReader(b[:len(b)*3/4]), Options{Next: index, Longest: len(needle)})
		if got.PLEG != 1 || st.Bytes < 1<<20 || st.Bytes >= 4<<20 || len(st.Truncated) != 1 || st.Truncated[0].Bytes != -1 || st.Compression != name {
			t.Errorf("%s: %+v %+v", name, got, st)
		}
	}
}

func TestLongLine(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 200_000)
	in := line + "E0703 19:59:05.000000 1 a.go:1] " + needle + long + "\n" + line + "goroutine 1:\n" +
		strings.Repeat("x.go:1 +0x1\n", 200_000) + line
	st, err := Scan(context.Background(), strings.NewReader(in), Options{Next: index, Longest: len(needle)}, func(r *Record) bool {
		if len(r.Raw) > defaultMaxRecord || !bytes.Contains(r.Raw, []byte(needle)) {
			t.Errorf("record of %d bytes: %.80s", len(r.Raw), r.Raw)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if st.Records != 4 || st.Lines != 200_005 || st.Unparsed != 0 || len(st.Truncated) != 2 {
		t.Errorf("%+v", st)
	}
}

func TestUTF16(t *testing.T) {
	out := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(strings.ReplaceAll(line+"I0703 19:59:02.000000 1 a.go:1] 𝄞\n", "\n", "\r\n"))) {
		out = append(out, byte(u), byte(u>>8))
	}
	got, st := count(t, bytes.NewReader(out), Options{All: true})
	if diff := cmp.Diff(counts{PLEG: 1, Ages: 1, Records: 2}, got); diff != "" || st.Lines != 2 {
		t.Errorf("%s %+v", diff, st)
	}
}

func TestGarbage(t *testing.T) {
	junk := make([]byte, 3000)
	for i := range junk {
		junk[i] = byte(i * 7 % 256)
	}
	got, st := count(t, bytes.NewReader(append(append(append([]byte(line), junk...), '\n'), "\x00\x00\x00\x00"+line...)), Options{All: true})
	if got.PLEG != 2 || got.Records != 2 || st.Unparsed == 0 || len(st.Truncated) == 0 {
		t.Errorf("%+v %+v", got, st)
	}
}

func TestUnparsed(t *testing.T) {
	in := "some prose\n\n" + needle + ": x\n-- Reboot --\n" + line + "goroutine 1 [running]:\nmain.main()\n\n...\nmore prose\n"
	_, st := count(t, strings.NewReader(in), Options{Next: index, Longest: len(needle)})
	if st.Unparsed != 2 || st.Records != 1 || st.Lines != 10 {
		t.Errorf("%+v", st)
	}
}

func TestHeaders(t *testing.T) {
	for in, want := range map[string]int{
		"Log file created at: 2021/03/04 05:06:07\nRunning on machine: h1\nBinary: Built with gc go1.15 for linux/amd64\n": 2021,
		"-- Logs begin at Mon 2019-12-30 09:26:20 UTC, end at Wed 2020-01-01 09:26:20 UTC. --\n":                           2020,
		"-- Journal begins at Mon 2019-02-11 09:26:20 CET, ends at Tue 2019-02-12 09:26:20 CET. --\n":                      2019,
	} {
		got, st := count(t, strings.NewReader(in+line), Options{All: true})
		if st.HeaderYear != want || st.Unparsed != 0 || got.Records != 1 {
			t.Errorf("%q: %+v %+v", in, st, got)
		}
	}
}

func TestSamples(t *testing.T) {
	var in strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&in, "I0703 19:%02d:%02d.000000 1 a.go:1] nothing\n", i/60, i%60)
	}
	var got []int64
	_, err := Scan(context.Background(), strings.NewReader(in.String()), Options{Next: index, Longest: 20, SampleEvery: 300}, func(r *Record) bool {
		if !r.Sample {
			t.Errorf("given: %q", r.Raw)
		}
		got = append(got, r.Offset/int64(len("I0703 19:00:00.000000 1 a.go:1] nothing\n"))+1)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{1, 301, 601, 901, 1000}, got); diff != "" {
		t.Error(diff)
	}
}

func TestParts(t *testing.T) {
	for name, in := range map[string]string{
		"docker": `{"log":"E0703 19:59:01.292918 1 k.go:1] PLEG is not ","stream":"stderr","time":"2023-07-03T19:59:01.1Z"}` + "\n" +
			`{"log":"other\n","stream":"stdout","time":"2023-07-03T19:59:01.2Z"}` + "\n" +
			`{"log":"healthy: x\n","stream":"stderr","time":"2023-07-03T19:59:01.3Z"}` + "\n",
		"CRI": "2023-07-03T19:59:01.1Z stderr P E0703 19:59:01.292918 1 k.go:1] PLEG is not \n" +
			"2023-07-03T19:59:01.2Z stdout F other\n2023-07-03T19:59:01.1Z stderr F healthy: x\n",
		"the end is missing": "2023-07-03T19:59:01.1Z stderr P E0703 19:59:01.292918 1 k.go:1] PLEG is not healthy: x\n" +
			"2023-07-03T19:59:01.2Z stdout F other\n",
	} {
		if got, _ := count(t, strings.NewReader(in), Options{Next: index, Longest: len(needle)}); got.PLEG != 1 || got.Records != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"kubelet.log", "kubelet.log.1", "kubelet.log.2.gz", "kubelet.log.10.gz", "syslog", "syslog-20261119.gz",
		"syslog-20261120", "k.log.INFO.20261121-120000.123", "k.log.INFO.20261120-120000.99", "c/0.log",
		"c/0.log.20261120-100000", "journal/a.journal", "readme.md", ".hidden", "wtmp-20261120", "x.tar.gz",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("k.log.INFO.20261121-120000.123", filepath.Join(dir, "k.INFO")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.log"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pipe.log", filepath.Join(dir, "link.log")); err != nil {
		t.Fatal(err)
	}
	got, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i], _ = filepath.Rel(dir, got[i])
	}
	want := []string{
		"c/0.log.20261120-100000", "c/0.log",
		"k.log.INFO.20261120-120000.99", "k.log.INFO.20261121-120000.123",
		"kubelet.log.10.gz", "kubelet.log.2.gz", "kubelet.log.1", "kubelet.log",
		"syslog-20261119.gz", "syslog-20261120", "syslog",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := Files(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	_, err := Scan(ctx, io.MultiReader(strings.NewReader(strings.Repeat(line, 20000)), strings.NewReader(strings.Repeat(line, 20000))), Options{All: true}, func(*Record) bool {
		n++
		cancel()
		return true
	})
	if err == nil || n == 40000 {
		t.Errorf("%d records after the end, %v", n, err)
	}
	n = 0
	if _, err := Scan(context.Background(), strings.NewReader(strings.Repeat(line, 10)), Options{All: true}, func(*Record) bool { n++; return false }); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}
