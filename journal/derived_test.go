package journal

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/journal/textlog"
)

// fold breaks lines at a width in characters, as a terminal does.
func fold(text string, width int) string {
	rows := regexp.MustCompile(fmt.Sprintf("(?m).{1,%d}|^$", width))
	return strings.Join(rows.FindAllString(text, -1), "\n")
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
	must(t, err)
	_, err = io.WriteString(w, text)
	must(t, err, w.Close())
	return out.String()
}

// manyLines matches the formats whose records have several lines. Nobody folds them.
var manyLines = regexp.MustCompile(`verbose|export|pretty`)

// TestDerived reads one excerpt in every form that journalctl can print and others wrap it in, also packed, with the
// line ends of Windows, and as terminals wrap it: 16 records, three flaps, of which nothing shows that the last one
// ended.
func TestDerived(t *testing.T) {
	names, err := filepath.Glob("testdata/derived/d*")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	want := []string{
		"incident 2023-07-03T11:59:01Z to 2023-07-03T11:59:16Z, worst 231.464916622s, flap 1, recovered true",
		"incident 2023-07-03T12:02:25Z to 2023-07-03T12:02:28Z, worst 183.111515826s, flap 2, recovered true",
		"incident 2023-07-03T12:06:26Z to 2023-07-03T12:06:30Z, worst 183.208885327s, flap 3, recovered false",
	}
	for _, name := range append(names, smallJournal(t)) {
		forms := map[string]string{"as it is": name}
		if text := testkit.Read(t, name); strings.HasSuffix(name, ".log") {
			half := len(text) / 2
			forms["crlf"] = put(t, "log", strings.ReplaceAll(text, "\n", "\r\n"))
			forms["gz"] = put(t, "log", packed(t, text[:half], "gzip")+packed(t, text[half:], "gzip"))
			forms["zst"], forms["xz"] = put(t, "log", packed(t, text, "zstd")), put(t, "log", packed(t, text, "xz"))
			if !manyLines.MatchString(name) {
				forms["fold 80"], forms["fold 120"] = put(t, "log", fold(text, 80)), put(t, "log", fold(text, 120))
			}
		}
		for form, file := range forms {
			r := readFile(t, file)
			if diff := cmp.Diff(want, briefs(r)); diff != "" || lines(r) != 16 || r.Unparsed > 0 {
				t.Errorf("%s, %s: %d unhealthy records, want 16; %d unparsed; %s", name, form, lines(r), r.Unparsed, diff)
			}
		}
	}
}

// smallJournal unpacks the journal file that the other forms were made of.
func smallJournal(t *testing.T) string {
	t.Helper()
	r, _, err := textlog.Unpack(strings.NewReader(testkit.Read(t, "journalfile/testdata/d00-small.journal.zst")))
	must(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	must(t, err)
	return put(t, "d00-small.journal", string(text))
}

// bare matches the logs of which no line has a header.
var bare = regexp.MustCompile(`/025-|/041-|/083-`)

// TestHealthyLogs reads each log, and its last two thirds, as if kdiag knew no signature: a log in which nothing is
// found is still a log.
func TestHealthyLogs(t *testing.T) {
	names, err := filepath.Glob("testdata/*/*.[lg]*") // all but the index
	if err != nil || len(names) < 90 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	for _, name := range names {
		opts := Options{Now: now, Local: time.UTC, Inputs: []Input{{Path: name}}}
		if text := testkit.Read(t, name); strings.HasSuffix(name, ".log") {
			_, tail, _ := strings.Cut(text[len(text)/3:], "\n")
			if strings.Count(tail, "\n") > 3 {
				opts.Inputs = append(opts.Inputs, Input{Kind: Stream, Reader: strings.NewReader(tail)})
			}
		}
		r := newReader(&opts, discover(opts.Inputs))
		var all []string
		for _, s := range signature.Catalogue() {
			all = append(all, s.Code)
		}
		r.m = matchers{signature.NewMatcher(all...), signature.NewMatcher(all...)}
		r.run(t.Context())
		for _, j := range r.sources {
			if bare.MatchString(name) != errors.Is(j.err, ErrNotLog) {
				t.Errorf("%s: %s: %v", name, j.name, j.err)
			}
		}
	}
}
