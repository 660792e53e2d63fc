package journalfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

const journalRemote = "/lib/systemd/systemd-journal-remote"

// need ends the test if a program is missing: with a failure where the end-to-end tests must run.
func need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("KDIAG_E2E") != "" {
			t.Fatalf("%s is missing", program)
		}
		t.Skipf("%s is missing", program)
	}
}

// journalctl returns what it exports. Versions from 254 on add two lines to an entry, which are taken out.
func journalctl(t testing.TB, args ...string) []byte {
	t.Helper()
	need(t, "journalctl")
	cmd := exec.CommandContext(t.Context(), "journalctl", append([]string{"-q", "--no-pager", "-o", "export"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	for bytes.Contains(out, []byte("\n__SEQNUM")) {
		head, rest, _ := bytes.Cut(out, []byte("\n__SEQNUM"))
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
		out = append(append(bytes.Clone(head), '\n'), rest...)
	}
	return out
}

// remote lets systemd-journal-remote write a journal of an export stream.
func remote(t testing.TB, path string, export []byte, env ...string) {
	t.Helper()
	need(t, journalRemote)
	cmd := exec.CommandContext(t.Context(), journalRemote, "-o", path, "-")
	cmd.Stdin, cmd.Env = bytes.NewReader(export), append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func exported(t testing.TB, files ...*File) []byte {
	t.Helper()
	var b bytes.Buffer
	write := func(e *Entry) bool {
		if missing, err := WriteExport(&b, e); err != nil || missing > 0 {
			t.Errorf("entry at %d: %d fields missing, %v", e.Offset, missing, err)
		}
		return true
	}
	var err error
	if len(files) == 1 {
		_, err = files[0].Search(t.Context(), Query{All: true}, write)
	} else {
		_, err = Merge(t.Context(), files, Query{}, write)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sameExport(t *testing.T, want, got []byte) {
	t.Helper()
	if len(want) == 0 {
		t.Fatal("journalctl exported nothing")
	}
	if !bytes.Equal(want, got) {
		at := 0
		for at < min(len(want), len(got)) && want[at] == got[at] {
			at++
		}
		t.Errorf("differs at byte %d of %d and %d:\n%q\n%q", at, len(want), len(got),
			want[max(0, at-80):min(len(want), at+80)], got[max(0, at-80):min(len(got), at+80)])
	}
}

// exportStream makes an export stream with everything that fields may hold.
func exportStream(entries int) []byte {
	var b bytes.Buffer
	for i := range entries {
		boot := "0123456789abcdef0123456789abcde1"
		if i > entries/2 {
			boot = "0123456789abcdef0123456789abcde2"
		}
		fmt.Fprintf(&b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n", t0+int64(i)*1000, 5_000_000+i*1000, boot)
		fmt.Fprintf(&b, "_SYSTEMD_UNIT=kubelet.service\nPRIORITY=6\n_PID=%d\n", 1000+i%3)
		switch i % 7 {
		case 0:
			fmt.Fprintf(&b, "MESSAGE=%s %s %d\n", needle, strings.Repeat("err=\"rpc error\" ", 10+i%90), i)
		case 1:
			fmt.Fprintf(&b, "MESSAGE=short %d\nTAG=a\nTAG=b\nTAG=a\nEMPTY=\n", i)
		case 2:
			binaryField(&b, "MESSAGE", []byte(fmt.Sprintf("two\nlines %d", i)))
		case 3:
			binaryField(&b, "COREDUMP", bytes.Repeat([]byte{0, byte(i), 0xFF, 7}, 400))
			fmt.Fprintf(&b, "MESSAGE=tab\t\u00e4\u20ac\U0001F600 %d\n", i)
		case 4:
			binaryField(&b, "MESSAGE", []byte("\x1b[31mred\x1b[0m \u0085\u009f"))
			binaryField(&b, "NOCHAR", []byte("\ufdd0 \ufffe \U0010FFFF"))
			binaryField(&b, "SURROGATE", []byte("\xed\xa0\x80 \xc0\x80 \xf5\x80\x80\x80"))
		case 5:
			fmt.Fprintf(&b, "MESSAGE=%s the same text\n", needle)
		case 6:
			fmt.Fprintf(&b, "MESSAGE=%s\n", strings.Repeat("x", 500+i%30))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func binaryField(b *bytes.Buffer, name string, value []byte) {
	b.WriteString(name + "\n")
	b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
	b.Write(value)
	b.WriteByte('\n')
}

// What systemd writes, in each mode that its environment selects, reads the same here as there.
func TestExportAgainstJournalctl(t *testing.T) {
	for _, compact := range []string{"0", "1"} {
		for _, keyed := range []string{"0", "1"} {
			for _, compress := range []string{"ZSTD", "LZ4", "XZ", "0"} {
				t.Run(fmt.Sprintf("compact=%s/keyed=%s/%s", compact, keyed, compress), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "x.journal")
					// systemd before 254 ignores the variable for the compression and takes ZSTD; the option says no to all.
					remote(t, path, exportStream(3000), "SYSTEMD_JOURNAL_COMPACT="+compact,
						"SYSTEMD_JOURNAL_KEYED_HASH="+keyed, "SYSTEMD_JOURNAL_COMPRESS="+compress)
					f := open(t, path)
					if got := f.Header().Compact(); got != (compact == "1") {
						t.Errorf("compact %v", got)
					}
					if got := f.Header().Incompatible&flagKeyed != 0; got != (keyed == "1") {
						t.Errorf("keyed %v", got)
					}
					sameExport(t, journalctl(t, "--file", path), exported(t, f))
				})
			}
		}
	}
}

// journalctl reads XZ and LZ4, though it does not write them any more.
func TestExportOfBuiltFiles(t *testing.T) {
	modes(t, func(t *testing.T, compact, keyed bool, pack byte) {
		path := filepath.Join(t.TempDir(), "x.journal")
		sample(compact, keyed, pack, 500).save(t, path)
		sameExport(t, journalctl(t, "--file", path), exported(t, open(t, path)))
	})
}

func corpusJournal(t testing.TB, path string) {
	t.Helper()
	packed, err := os.ReadFile("testdata/d00-small.journal.zst")
	if err != nil {
		t.Fatal(err)
	}
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	b, err := dec.DecodeAll(packed, nil)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file of the corpus: 29 entries, 16 of them say that PLEG is not healthy.
func TestCorpusJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d00.journal")
	corpusJournal(t, path)
	f := open(t, path)
	hits, stats := collect(t, f, Query{Match: pleg})
	if len(hits) != 16 || stats.Entries != 29 || len(stats.Unreadable) != 0 {
		t.Errorf("%d hits of %d entries, unreadable %v; want 16 of 29, and all of it", len(hits), stats.Entries, stats.Unreadable)
	}
	sameExport(t, journalctl(t, "--file", path), exported(t, f))
}

// Several files of one journal and of another machine, with some entries in two of them, merge as journalctl merges them.
func TestMergeAgainstJournalctl(t *testing.T) {
	dir := t.TempDir()
	stream := exportStream(3000)
	cut := bytes.Index(stream[len(stream)/2:], []byte("\n\n__REALTIME")) + len(stream)/2 + 2
	remote(t, filepath.Join(dir, "a.journal"), stream[:cut])
	remote(t, filepath.Join(dir, "b.journal"), stream[cut:])
	other := bytes.ReplaceAll(stream[:cut], []byte("0123456789abcdef0123456789abcde"), []byte("fedcba98765432100123456789abcde"))
	remote(t, filepath.Join(dir, "c.journal"), bytes.ReplaceAll(other, []byte("kubelet.service"), []byte("k3s.service")))
	names, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []*File
	for _, n := range names {
		files = append(files, open(t, n))
	}
	sameExport(t, journalctl(t, "-D", dir), exported(t, files...))
}

func TestMerge(t *testing.T) {
	w := newBuilder(true, true, objZSTD)
	for i := range 10 {
		w.entry(t0+uint64(i)*1e6, 1, fmt.Sprintf("MESSAGE=%s %d", needle, i), "_SYSTEMD_UNIT=kubelet.service")
	}
	first := bytes.Clone(w.b)
	for i := 10; i < 20; i++ {
		w.entry(t0+uint64(i)*1e6, 1, fmt.Sprintf("MESSAGE=other %d", i))
	}
	var got []string
	q := Query{Since: t0 + 5e6, Match: pleg}
	// The second file holds all of the first one.
	stats, err := Merge(t.Context(), []*File{openBytes(t, first), openBytes(t, w.b)}, q, func(e *Entry) bool {
		got = append(got, string(e.Message)+" "+string(e.Field("_SYSTEMD_UNIT")))
		if e.File().Path() != "memory" {
			t.Errorf("entry of %s", e.File().Path())
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := 5; i < 10; i++ {
		want = append(want, fmt.Sprintf("%s %d kubelet.service", needle, i))
	}
	if diff := cmp.Diff(want, got); diff != "" || stats.Entries != 15 {
		t.Errorf("%d entries, want 15\n%s", stats.Entries, diff)
	}
}

func TestCursor(t *testing.T) {
	f := openBytes(t, sample(true, true, 0, 3).b)
	var all []Cursor
	if _, err := f.Search(t.Context(), Query{All: true}, func(e *Entry) bool { all = append(all, e.Cursor()); return true }); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		back, err := ParseCursor(c.String())
		if err != nil || back != c {
			t.Errorf("%s reads back as %s, %v", c, back, err)
		}
		if i > 0 && (all[i-1].Compare(c) >= 0 || c.Compare(all[i-1]) <= 0 || c.Compare(c) != 0) {
			t.Errorf("%s does not come before %s", all[i-1], c)
		}
	}
	for _, bad := range []string{"", "s=1", "i=zz", "q=1", "s=" + strings.Repeat("g", 32)} {
		if _, err := ParseCursor(bad); err == nil {
			t.Errorf("%q reads as a cursor", bad)
		}
	}
	byTime := Cursor{Realtime: all[1].Realtime}
	if byTime.Compare(all[0]) <= 0 || byTime.Compare(all[2]) >= 0 {
		t.Error("a cursor of a time alone does not order by time")
	}
}
