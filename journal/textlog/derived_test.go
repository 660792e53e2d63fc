package textlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
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
		if _, err := time.ParseDuration(age); found && err == nil && strings.Contains(string(r.Message), "threshold is 3m0s") {
			c.Ages++
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, st
}

func readers() map[string]Options {
	return map[string]Options{
		"all":       {All: true},
		"all+next":  {All: true, Next: index, Longest: len(needle)},
		"prefilter": {Next: index, Longest: len(needle)},
		"samples":   {Next: index, Longest: len(needle), SampleEvery: 3},
	}
}

// fold breaks lines at a width in characters, as a terminal does.
func fold(b []byte, width int) []byte {
	var out []byte
	for line := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		for {
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

// manyLines matches the formats whose records have several lines. Nobody folds them.
var manyLines = regexp.MustCompile(`verbose|export|pretty`)

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
			if !manyLines.MatchString(file) {
				forms["fold 80"], forms["fold 120"] = fold(plain, 80), fold(plain, 120)
			}
			for form, b := range forms {
				for name, opts := range readers() {
					got, st := count(t, bytes.NewReader(b), opts)
					want := counts{PLEG: 16, Ages: 16, Records: entries}
					if !opts.All {
						want.Records = 16
					} else if strings.HasPrefix(form, "fold") {
						want.Records = got.Records // the text of an object may begin like a record behind a fold
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
