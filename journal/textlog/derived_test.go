package textlog

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

const needle = "PLEG is not healthy"

// search selects the records that contain a text, as a matcher of signatures selects those with one of many.
func search() Options {
	return Options{Next: func(b []byte) int { return bytes.Index(b, []byte(needle)) }, Longest: len(needle)}
}

// scan scans a text, and passes on the records.
func scan(t testing.TB, text string, opts Options, take func(*Record)) Stats {
	t.Helper()
	st, err := Scan(t.Context(), strings.NewReader(text), opts, func(r *Record) bool { take(r); return true })
	must(t, err)
	return st
}

// counts is what a reading of a stream gave.
type counts struct {
	PLEG, Ages, Records int
}

// whole matches a PLEG record in which the age is whole.
var whole = regexp.MustCompile(`last seen active (?:\d+[hm])*[\d.]+s ago; threshold is 3m0s`)

// count scans a text. Ages counts the PLEG records in which the age is whole.
func count(t testing.TB, text string, opts Options) (c counts, st Stats) {
	t.Helper()
	st = scan(t, text, opts, func(r *Record) {
		if r.Sample {
			return
		}
		c.Records++
		if bytes.Contains(r.Message, []byte(needle)) {
			c.PLEG++
			c.Ages += len(whole.FindAll(r.Message, 1))
		}
	})
	return c, st
}

// fold breaks lines at a width in characters, as a terminal does.
func fold(text string, width int) string {
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		for {
			i, chars := 0, 0
			for i < len(line) && chars < width {
				_, size := utf8.DecodeRuneInString(line[i:])
				i, chars = i+size, chars+1
			}
			out.WriteString(line[:i] + "\n")
			if line = line[i:]; line == "" {
				break
			}
		}
	}
	return out.String()
}

// packed returns a text packed by gzip, zstd or xz.
func packed(t testing.TB, text, format string) string {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	var err error
	switch format {
	case "zstd":
		w, err = zstd.NewWriter(&out, zstd.WithWindowSize(64<<10))
	case "xz":
		w, err = xz.NewWriter(&out)
	}
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err == nil {
		err = w.Close()
	}
	must(t, err)
	return out.String()
}

// manyLines matches the formats whose records have several lines. Nobody folds them.
var manyLines = regexp.MustCompile(`verbose|export|pretty`)

// TestDerived reads one excerpt in every form that journalctl and others give it, packed and folded.
func TestDerived(t *testing.T) {
	files, err := filepath.Glob("../testdata/derived/*.log")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d derived files, %v", len(files), err)
	}
	for _, file := range append(files, "testdata/d01-short.log.bz2") {
		content, err := os.ReadFile(file)
		must(t, err)
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			entries := 29
			if strings.Contains(file, "d18") {
				entries = 16
			}
			text := string(content)
			forms := map[string]string{"as it is": text}
			if !strings.HasSuffix(file, "bz2") {
				half := len(text) / 2
				forms["crlf"] = strings.ReplaceAll(text, "\n", "\r\n")
				forms["gz"] = packed(t, text[:half], "gzip") + packed(t, text[half:], "gzip")
				forms["zst"], forms["xz"] = packed(t, text, "zstd"), packed(t, text, "xz")
				if !manyLines.MatchString(file) {
					forms["fold 80"], forms["fold 120"] = fold(text, 80), fold(text, 120)
				}
			}
			samples, all := search(), search()
			samples.SampleEvery, all.All = 3, true
			for form, text := range forms {
				for name, opts := range map[string]Options{
					"all": {All: true}, "all, and search": all, "search": search(), "samples": samples,
				} {
					got, st := count(t, text, opts)
					want := counts{PLEG: 16, Ages: 16, Records: entries}
					if !opts.All {
						want.Records = 16
					} else if strings.HasPrefix(form, "fold") {
						want.Records = got.Records // the text of an object may begin like a record behind a fold
					}
					if diff := cmp.Diff(want, got); diff != "" || st.Unparsed != 0 {
						t.Errorf("%s, %s: %d lines unparsed (-want +got)\n%s", form, name, st.Unparsed, diff)
					}
				}
			}
		})
	}
}

// must ends a test or a benchmark that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
