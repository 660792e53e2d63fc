package journalfile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
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

// An exportedEntry is what is compared of an entry.
type exportedEntry struct{ Realtime, Monotonic, Boot, Unit, Message string }

// journalctl returns the entries with a message as journalctl reads them.
func journalctl(t testing.TB, path string) (all []exportedEntry) {
	t.Helper()
	need(t, "journalctl")
	out, err := exec.CommandContext(t.Context(), "journalctl", "-q", "--no-pager", "-a", "-o", "json", "--file", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		text := func(key string) string {
			list, ok := fields[key].([]any) // of bytes
			if !ok {
				s, _ := fields[key].(string)
				return s
			}
			var b []byte
			for _, c := range list {
				b = append(b, byte(c.(float64)))
			}
			return string(b)
		}
		if e := (exportedEntry{
			text("__REALTIME_TIMESTAMP"), text("__MONOTONIC_TIMESTAMP"), text("_BOOT_ID"), text("_SYSTEMD_UNIT"), text("MESSAGE"),
		}); e.Message != "" {
			all = append(all, e)
		}
	}
	return all
}

// entries returns the same of a file as this package reads it.
func entries(t testing.TB, f *File) (all []exportedEntry) {
	t.Helper()
	stats, err := f.Search(t.Context(), Query{}, func(e *Entry) bool {
		all = append(all, exportedEntry{
			fmt.Sprint(e.Realtime), fmt.Sprint(e.Monotonic), hex.EncodeToString(e.Boot[:]), unit(e), string(e.Message),
		})
		return true
	})
	if err != nil || stats.Unresolved > 0 {
		t.Errorf("%d entries are not complete: %v", stats.Unresolved, err)
	}
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
