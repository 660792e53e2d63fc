package journalfile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// An exported entry is what journalctl exports of one: the fields that Labels gives, and its times and boot.
type exportedEntry struct {
	Realtime, Monotonic, Boot, Message string
	Labels                             []string
}

// journalctl returns the entries of a journal file in the order in which journalctl exports them.
func journalctl(t testing.TB, path string) []exportedEntry {
	t.Helper()
	need(t, "journalctl")
	cmd := exec.CommandContext(t.Context(), "journalctl", "-q", "--no-pager", "-o", "export", "--file", path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	var all []exportedEntry
	for e := (exportedEntry{}); len(out) > 0; {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		name, value, ok := strings.Cut(string(line), "=")
		if !ok && len(line) > 0 { // a binary field: its length, then the value
			n := binary.LittleEndian.Uint64(rest)
			value, rest = string(rest[8:8+n]), rest[8+n+1:]
		}
		out = rest
		switch name {
		case "":
			if e.Message != "" { // entries without one are not searched
				all = append(all, e)
			}
			e = exportedEntry{}
		case "__REALTIME_TIMESTAMP":
			e.Realtime = value
		case "__MONOTONIC_TIMESTAMP":
			e.Monotonic = value
		case "_BOOT_ID":
			e.Boot = value
		case "MESSAGE":
			e.Message = value
		default:
			if !strings.HasPrefix(name, "__") && len(value) < 400 { // longer ones may be compressed
				e.Labels = append(e.Labels, name+"="+value)
			}
		}
	}
	return all
}

// entries returns the same of a file as this package reads it.
func entries(t testing.TB, f *File) []exportedEntry {
	t.Helper()
	var all []exportedEntry
	stats, err := f.Search(t.Context(), Query{}, func(e *Entry) bool {
		x := exportedEntry{fmt.Sprint(e.Realtime), fmt.Sprint(e.Monotonic), hex.EncodeToString(e.Boot[:]), string(e.Message), nil}
		for l := range e.Labels() {
			if name, value, _ := strings.Cut(string(l), "="); name != "MESSAGE" && name != "_BOOT_ID" && len(value) < 400 {
				x.Labels = append(x.Labels, string(l))
			}
		}
		all = append(all, x)
		return true
	})
	if err != nil || stats.Unresolved > 0 {
		t.Errorf("%d entries are not complete: %v", stats.Unresolved, err)
	}
	slices.SortFunc(all, func(a, b exportedEntry) int { return strings.Compare(a.Realtime, b.Realtime) })
	return all
}

// sameAsJournalctl compares all entries of a file with what journalctl reads in it.
func sameAsJournalctl(t *testing.T, path string) {
	t.Helper()
	want := journalctl(t, path)
	if len(want) == 0 {
		t.Fatal("journalctl exported nothing")
	}
	if diff := cmp.Diff(want, entries(t, open(t, path))); diff != "" {
		t.Error(diff[:min(len(diff), 2000)])
	}
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

// TestAgainstJournalctl reads what systemd writes in each mode that its environment selects.
func TestAgainstJournalctl(t *testing.T) {
	for _, compact := range []string{"0", "1"} {
		for _, keyed := range []string{"0", "1"} {
			for _, compress := range []string{"ZSTD", "LZ4", "XZ", "0"} {
				t.Run(fmt.Sprintf("compact=%s/keyed=%s/%s", compact, keyed, compress), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "x.journal")
					// systemd before 254 ignores the variable for the compression and takes ZSTD; the option disables all.
					remote(t, path, exportStream(3000), "SYSTEMD_JOURNAL_COMPACT="+compact,
						"SYSTEMD_JOURNAL_KEYED_HASH="+keyed, "SYSTEMD_JOURNAL_COMPRESS="+compress)
					head := open(t, path).img.head
					if got := head.incompatible&flagCompact != 0; got != (compact == "1") {
						t.Errorf("compact %v", got)
					}
					if got := head.incompatible&flagKeyed != 0; got != (keyed == "1") {
						t.Errorf("keyed %v", got)
					}
					sameAsJournalctl(t, path)
				})
			}
		}
	}
}

// TestBuiltFilesAgainstJournalctl compares files with XZ and LZ4, which systemd reads but does not write any more.
func TestBuiltFilesAgainstJournalctl(t *testing.T) {
	modes(t, func(t *testing.T, compact, keyed bool, pack byte) {
		path := filepath.Join(t.TempDir(), "x.journal")
		sample(compact, keyed, pack, 500).save(t, path)
		sameAsJournalctl(t, path)
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

// TestCorpusJournal searches a file of the corpus: 29 entries, 16 of them with the needle.
func TestCorpusJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d00.journal")
	corpusJournal(t, path)
	f := open(t, path)
	hits, stats := collect(t, f, Query{Match: pleg})
	if len(hits) != 16 || stats.Entries != 29 || len(stats.Unreadable) != 0 {
		t.Errorf("%d hits of %d entries, unreadable %v; want 16 of 29, and all of it", len(hits), stats.Entries, stats.Unreadable)
	}
	sameAsJournalctl(t, path)
}
