package textlog

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/journal/klog"
)

// seen is what is kept of a record to compare two readings.
type seen struct {
	Offset       int64
	Raw, Message string
	Outer, Inner klog.Stamp
	Format, Host string
	Sample       bool
}

func readAll(t *testing.T, b []byte, opts Options, chunk bool) ([]seen, Stats) {
	t.Helper()
	var all []seen
	r := bytes.NewReader(b)
	yield := func(r *Record) bool {
		all = append(all, seen{r.Offset, string(r.Raw), string(r.Message), r.Outer, r.Inner, r.Format, r.Host, r.Sample})
		return true
	}
	var st Stats
	var err error
	if chunk {
		st, err = Scan(context.Background(), iotest.OneByteReader(r), opts, yield)
	} else {
		st, err = Scan(context.Background(), r, opts, yield)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all, st
}

// lines counts the lines of plain text.
func lines(b []byte) int64 {
	n := int64(bytes.Count(b, []byte("\n")))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}

func seeds(f *testing.F) {
	f.Helper()
	for _, pattern := range []string{"../testdata/corpus/*.log", "../testdata/derived/*.log"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b[:min(len(b), 3000)])
		}
	}
	f.Add([]byte("E0703 19:59:01.292918 1 k.go:1] a\n\x00\x00\x00\x00\nfoo\nPLEG is not hea\nlthy"))
	f.Add(bytes.Repeat([]byte("0123456789 PLEG is not healthy "), 200))
	for _, form := range []string{
		"{\n\t\"MESSAGE\" : \"PLEG is not healthy: x\",\n\t\"_PID\" : \"1\"\n}\n{\n\t\"MESSAGE\" : \"y\"\n",
		"{\"msg\":\"\x1b[1m" + line[:60] + "\n" + line + "\n{\"a\": \"PLEG is \x1b[0mnot healthy\"}\nPLEG is not\n healthy\n",
	} {
		f.Add([]byte(form))
	}
}

// FuzzScan wants the same records however a reader cuts the text, every line counted, and each literal found that
// stands in one line.
func FuzzScan(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, compression, err := unpack(bytes.NewReader(b))
		if err != nil || compression != "" || len(b) > 16<<10 || len(b) > 0 && b[0] >= 0xfe { // packed, or UTF-16
			return
		}
		text := bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
		for _, opts := range []Options{
			{All: true, maxRecord: 512},
			{Next: index, Longest: len(needle), maxRecord: 512, SampleEvery: 2},
			{Next: index, Longest: len(needle)},
		} {
			whole, st := readAll(t, b, opts, false)
			cut, _ := readAll(t, b, opts, true)
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Fatalf("the chunks of the reader matter:\n%s", diff)
			}
			if st.Lines != lines(text) || st.Bytes != int64(len(text)) {
				t.Fatalf("%d lines and %d bytes, want %d and %d", st.Lines, st.Bytes, lines(text), len(text))
			}
			for _, r := range whole {
				if len(r.Raw) > 8<<10 && opts.maxRecord == 512 {
					t.Fatalf("record of %d bytes", len(r.Raw))
				}
			}
		}
	})
}

// FuzzPrefix peels single lines.
func FuzzPrefix(f *testing.F) {
	for _, line := range []string{
		"<30>1 2023-07-03T19:59:01.292918+08:00 h kubelet 19 - [a b=\"]\"] E0703 19:59:01.292918 1 k.go:1] x", "9月 25 11:05:06 h k[1]: x",
		"[Mon Nov 21 04:50:00 2026] nfs: server", "192.168.1.1: {\"ts\":1,\"msg\":\"x\"}", "Sep 04 09:23:20 kubelet[7981]: x",
		"2023-07-03T19:59:01.2Z stderr P x", "\"E0703 19:59:01.292918 1 k.go:1] \\\"x\\\"\"", "{\"log\":\"x\\ny\\n\"}",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, _ := begin(b)
		p := &peeling{Record: &Record{}}
		p.peel(b)
		if p.Format == "" {
			t.Fatalf("%q has no format, begins as %d", b, k)
		}
	})
}
