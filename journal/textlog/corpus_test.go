package textlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

const needle = "PLEG is not healthy"

// index finds one text, as a matcher of signatures finds many.
func index(b []byte) int { return bytes.Index(b, []byte(needle)) }

// counts is what a reading of a stream gave.
type counts struct {
	PLEG, Ages, Records int
}

// count scans a stream. Ages counts the PLEG records in which the age is whole.
func count(t testing.TB, r io.Reader, opts Options) (counts, Stats) {
	t.Helper()
	var c counts
	st, err := Scan(context.Background(), r, opts, func(r *Record) bool {
		if r.Sample {
			return true
		}
		c.Records++
		if !bytes.Contains(r.Message, []byte(needle)) {
			return true
		}
		c.PLEG++
		_, after, found := strings.Cut(string(r.Message), "last seen active ")
		age, _, _ := strings.Cut(after, " ago")
		if _, bad := parseAge(age); found && bad == "" && strings.Contains(string(r.Message), "threshold is 3m0s") {
			c.Ages++
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, st
}

// parseAge returns what of a duration cannot be read.
func parseAge(s string) (units int, bad string) {
	for s != "" {
		n := strings.IndexAny(s, "hms")
		if n < 1 || strings.Trim(s[:n], "0123456789.") != "" {
			return units, s
		}
		s, units = s[n+1:], units+1
	}
	if units == 0 {
		return 0, "empty"
	}
	return units, ""
}

// truth reads pleg_lines of the corpus by file.
func truth(t *testing.T) map[string]int {
	t.Helper()
	b, err := os.ReadFile("../testdata/corpus/index.tsv")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Split(line, "\t")
		if len(f) < 10 || f[0] == "file" {
			continue
		}
		if want[f[0]], err = strconv.Atoi(f[8]); err != nil {
			t.Fatalf("%s: %v", f[0], err)
		}
	}
	return want
}

func readers() map[string]Options {
	return map[string]Options{
		"all":       {All: true},
		"all+next":  {All: true, Next: index, Longest: len(needle)},
		"prefilter": {Next: index, Longest: len(needle)},
		"samples":   {Next: index, Longest: len(needle), SampleEvery: 3},
	}
}

func TestCorpus(t *testing.T) {
	want := truth(t)
	if len(want) < 50 {
		t.Fatalf("index.tsv tells of %d files", len(want))
	}
	for file, n := range want {
		b, err := os.ReadFile("../testdata/corpus/" + file + ".log")
		if err != nil {
			b, err = os.ReadFile("../testdata/corpus/" + file)
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, opts := range readers() {
			got, st := count(t, bytes.NewReader(b), opts)
			if got.PLEG != n {
				t.Errorf("%s, %s: %d records, want %d", file, name, got.PLEG, n)
			}
			if len(st.Truncated) > 0 {
				t.Errorf("%s, %s: truncated %v", file, name, st.Truncated)
			}
		}
	}
}

// fold breaks lines at a width in characters and puts indent in front of what continues them.
func fold(b []byte, width int, indent string) []byte {
	var out []byte
	for line := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		for n := 0; ; n++ {
			if n > 0 {
				out = append(out, indent...)
			}
			i, chars := 0, 0
			for i < len(line) && chars < width {
				_, size := utf8.DecodeRune(line[i:])
				i, chars = i+size, chars+1
			}
			out = append(append(out, line[:i]...), '\n')
			if line = line[i:]; len(line) == 0 {
				break
			}
		}
	}
	return out
}

// pack runs a packer on b.
func pack(t *testing.T, b []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(b)
	out, err := cmd.Output()
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) && os.Getenv("KDIAG_E2E") == "" {
			t.Skipf("%s: %v", name, err)
		}
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDerived(t *testing.T) {
	files, err := filepath.Glob("../testdata/derived/*.log")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d derived files, %v", len(files), err)
	}
	for _, file := range files {
		plain, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			entries := 29
			if strings.Contains(file, "d18") {
				entries = 16
			}
			forms := map[string][]byte{
				"plain": plain,
				"crlf":  bytes.ReplaceAll(plain, []byte("\n"), []byte("\r\n")),
				"gz":    append(gzipped(t, plain[:len(plain)/2]), gzipped(t, plain[len(plain)/2:])...),
				"xz":    pack(t, plain, "xz", "-c"),
				"bz2":   pack(t, plain, "bzip2", "-c"),
				"zst":   pack(t, plain, "zstd", "-c"),
			}
			for _, width := range []int{80, 120} {
				for _, indent := range []string{"", " "} {
					forms[fmt.Sprintf("fold %d %q", width, indent)] = fold(plain, width, indent)
				}
			}
			for form, b := range forms {
				for name, opts := range readers() {
					got, st := count(t, bytes.NewReader(b), opts)
					want := counts{PLEG: 16, Ages: 16, Records: entries}
					if !opts.All {
						want.Records = 16
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s, %s: (-want +got)\n%s", form, name, diff)
					}
					if st.Unparsed != 0 {
						t.Errorf("%s, %s: %d lines unparsed", form, name, st.Unparsed)
					}
				}
			}
		})
	}
}
