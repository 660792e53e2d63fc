package textlog

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// readAll returns all records of a text, read in one piece or byte by byte.
func readAll(t *testing.T, b []byte, opts Options, bytewise bool) (all []Record, st Stats) {
	t.Helper()
	var in io.Reader = bytes.NewReader(b)
	if bytewise {
		in = iotest.OneByteReader(in)
	}
	st, err := Scan(t.Context(), in, opts, func(r *Record) bool {
		kept := *r
		kept.Raw, kept.Message = bytes.Clone(r.Raw), bytes.Clone(r.Message)
		all = append(all, kept)
		return true
	})
	must(t, err)
	return all, st
}

// FuzzScan checks that the records do not depend on how a reader cuts the text, and that every line is counted.
func FuzzScan(f *testing.F) {
	files, err := filepath.Glob("../testdata/[cd]*/*.log") // corpus and derived
	if err != nil || len(files) < 70 {
		f.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range append(files, "testdata/prefixes.txt") {
		b, err := os.ReadFile(file)
		must(f, err)
		f.Add(b[:min(len(b), 3000)])
	}
	f.Add(bytes.Repeat([]byte("0123456789 PLEG is not healthy "), 200))
	for _, form := range []string{
		"E0703 19:59:01.292918 1 k.go:1] a\n\x00\x00\x00\x00\nfoo\nPLEG is not hea\nlthy",
		"{\n\t\"MESSAGE\" : \"PLEG is not healthy: x\",\n\t\"_PID\" : \"1\"\n}\n{\n\t\"MESSAGE\" : \"y\"\n",
		"{\"msg\":\"\x1b[1m" + line[:60] + "\n" + line + "\n{\"a\": \"PLEG is \x1b[0mnot healthy\"}\n" +
			"PLEG is not\n healthy\n",
	} {
		f.Add([]byte(form))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, compression, err := Unpack(bytes.NewReader(b))
		if err != nil || compression != "" || len(b) > 16<<10 { // packed
			return
		}
		text := bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
		for _, opts := range []Options{
			{All: true, maxRecord: 512},
			{Next: search().Next, Longest: len(needle), maxRecord: 512, SampleEvery: 2},
			search(),
		} {
			whole, st := readAll(t, b, opts, false)
			cut, _ := readAll(t, b, opts, true)
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Fatalf("the chunks of the reader matter:\n%s", diff)
			}
			lines := bytes.Count(text, []byte("\n"))
			if len(text) > 0 && text[len(text)-1] != '\n' {
				lines++
			}
			if st.Lines != int64(lines) || st.Bytes != int64(len(text)) {
				t.Fatalf("%d lines and %d bytes, want %d and %d", st.Lines, st.Bytes, lines, len(text))
			}
			for _, r := range whole {
				if len(r.Raw) > 8<<10 && opts.maxRecord == 512 {
					t.Fatalf("record of %d bytes", len(r.Raw))
				}
			}
		}
	})
}
