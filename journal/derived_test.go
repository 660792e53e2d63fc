package journal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/kdiag/kdiag/journal/signature"
)

// TestDerived reads one excerpt in every form that journalctl can print and others wrap it in: 16 records, three flaps,
// of which nothing shows that the last one ended.
func TestDerived(t *testing.T) {
	names, err := filepath.Glob("testdata/derived/d*")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	for _, n := range append(names, smallJournal(t)) {
		t.Run(filepath.Base(n), func(t *testing.T) {
			r := readFile(t, n)
			want := []string{
				"incident 2023-07-03T11:59:01Z to 2023-07-03T11:59:16Z, worst 231.464916622s, flap 1, recovered true",
				"incident 2023-07-03T12:02:25Z to 2023-07-03T12:02:28Z, worst 183.111515826s, flap 2, recovered true",
				"incident 2023-07-03T12:06:26Z to 2023-07-03T12:06:30Z, worst 183.208885327s, flap 3, recovered false",
			}
			if diff := cmp.Diff(want, briefs(r)); diff != "" || lines(r) != 16 {
				t.Errorf("%d unhealthy records, want 16; %s", lines(r), diff)
			}
		})
	}
}

// smallJournal unpacks the journal file that the other forms were made of.
func smallJournal(t *testing.T) string {
	t.Helper()
	packed, err := os.Open("journalfile/testdata/d00-small.journal.zst")
	must(t, err)
	defer packed.Close()
	d, err := zstd.NewReader(packed)
	must(t, err)
	defer d.Close()
	b, err := io.ReadAll(d)
	must(t, err)
	return put(t, "d00-small.journal", string(b))
}

// TestReal reads the log of a real kubelet whose containerd was frozen for seven minutes.
func TestReal(t *testing.T) {
	r := readFile(t, "testdata/real/kubelet-1.36-containerd-frozen.log.zst")
	want := []string{
		"startup 2026-11-21T00:48:43Z to 2026-11-21T00:48:43Z, worst 0s, flap 0, recovered true",
		"incident 2026-11-21T00:52:12Z to 2026-11-21T00:56:07Z, worst 418.98149847s, flap 0, recovered true",
	}
	if diff := cmp.Diff(want, briefs(r)); diff != "" {
		t.Fatal(diff)
	}
	if at := r.Episodes[1].Anchor.Format("15:04:05.000"); at != "00:49:08.541" {
		t.Errorf("the relist that got stuck began at %s, want 00:49:08.541", at)
	}
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
		if text, err := os.ReadFile(name); strings.HasSuffix(name, ".log") {
			must(t, err)
			_, tail, _ := bytes.Cut(text[len(text)/3:], []byte("\n"))
			if bytes.Count(tail, []byte("\n")) > 3 {
				opts.Inputs = append(opts.Inputs, Input{Kind: Stream, Reader: bytes.NewReader(tail)})
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
