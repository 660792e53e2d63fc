package textlog

import (
	"bytes"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/internal/testkit"
)

// FuzzScan checks that the records do not depend on how a reader cuts the text, and that every line is counted.
func FuzzScan(f *testing.F) {
	files, err := filepath.Glob("../testdata/[cd]*/*.log") // corpus and derived
	if err != nil || len(files) < 70 {
		f.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range append(files, "testdata/prefixes.txt") {
		text := []byte(testkit.Read(f, file))
		f.Add(text[:min(len(text), 3000)])
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
			whole, st := scan(t, bytes.NewReader(b), opts)
			cut, _ := scan(t, iotest.OneByteReader(bytes.NewReader(b)), opts)
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
