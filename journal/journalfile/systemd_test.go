package journalfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

const journalRemote = "/lib/systemd/systemd-journal-remote"

// sameAsJournalctl compares all entries with a message in a file with what journalctl reads in it.
func sameAsJournalctl(t *testing.T, path string) {
	t.Helper()
	nodebox.NeedProgram(t, "journalctl")
	args := []string{"-q", "--no-pager", "-a", "-o", "json", "--file", path}
	out, err := exec.CommandContext(t.Context(), "journalctl", args...).Output()
	must(t, err)
	var want []line
	for text := range bytes.Lines(out) {
		var fields map[string]any
		must(t, json.Unmarshal(text, &fields))
		message, isText := fields["MESSAGE"].(string)
		if codes, ok := fields["MESSAGE"].([]any); ok { // bytes that are no text
			for _, c := range codes {
				message += string([]byte{byte(c.(float64))})
			}
		} else if !isText {
			continue
		}
		realtime, _ := strconv.ParseUint(fields["__REALTIME_TIMESTAMP"].(string), 10, 64) // digits
		unit, _ := fields["_SYSTEMD_UNIT"].(string)
		want = append(want, line{realtime, unit, message})
	}
	got, stats := find(t, open(t, path), Query{})
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 || stats.Unresolved > 0 {
		t.Errorf("%d entries, %d without an entry: %s", len(want), stats.Unresolved, diff[:min(len(diff), 2000)])
	}
}

// remote lets systemd-journal-remote write a journal of an export stream.
func remote(t testing.TB, path string, export []byte, env ...string) {
	t.Helper()
	nodebox.NeedProgram(t, journalRemote)
	cmd := exec.CommandContext(t.Context(), journalRemote, "-o", path, "-")
	cmd.Stdin, cmd.Env = bytes.NewReader(export), append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// exportEntry writes one entry of an export stream, a millisecond after the one before it.
func exportEntry(b *bytes.Buffer, i int, boot byte, fields ...string) {
	fmt.Fprintf(b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=0123456789abcdef0123456789abcd%02x\n"+
		"_SYSTEMD_UNIT=kubelet.service\nPRIORITY=6\n_PID=%d\n", t0+i*1000, 5_000_000+i*1000, boot, 1000+i%3)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		if strings.ContainsAny(value, "\n\x00\x1b") { // written as binary
			size := binary.LittleEndian.AppendUint64(nil, uint64(len(value)))
			f = name + "\n" + string(size) + value
		}
		b.WriteString(f + "\n")
	}
	b.WriteByte('\n')
}

// exportStream makes an export stream with everything that fields may hold.
func exportStream(entries int) []byte {
	var b bytes.Buffer
	for i := range entries {
		fields := [][]string{
			{fmt.Sprintf("MESSAGE=%s %s %d", needle, strings.Repeat("err=\"rpc error\" ", 10+i%90), i)},
			{fmt.Sprintf("MESSAGE=short %d", i), "TAG=a", "TAG=b", "TAG=a", "EMPTY="},
			{fmt.Sprintf("MESSAGE=two\nlines %d", i)},
			{
				"COREDUMP=" + strings.Repeat(string([]byte{0, byte(i), 0xFF, 7}), 400),
				fmt.Sprintf("MESSAGE=tab\t\u00e4\u20ac\U0001F600 %d", i),
			},
			{"MESSAGE=\x1b[31mred\x1b[0m \u0085\u009f"},
			{"MESSAGE=" + needle + " the same text"},
			{"MESSAGE=" + strings.Repeat("x", 500+i%30)},
		}[i%7]
		exportEntry(&b, i, 0xe1+byte(2*i/entries), fields...)
	}
	return b.Bytes()
}

// TestAgainstJournalctl reads what systemd writes in each mode that its environment selects.
func TestAgainstJournalctl(t *testing.T) {
	for _, compact := range []string{"0", "1"} {
		for _, keyed := range []string{"0", "1"} {
			for _, compress := range []string{"ZSTD", "LZ4", "XZ", "0"} {
				t.Run(fmt.Sprintf("compact=%s/keyed=%s/%s", compact, keyed, compress), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "x.journal")
					// systemd before 254 ignores the variable for the compression and takes ZSTD; 0 disables all.
					remote(t, path, exportStream(3000), "SYSTEMD_JOURNAL_COMPACT="+compact,
						"SYSTEMD_JOURNAL_KEYED_HASH="+keyed, "SYSTEMD_JOURNAL_COMPRESS="+compress)
					flags := open(t, path).img.head.incompatible
					if (flags&flagCompact != 0) != (compact == "1") || (flags&flagKeyed != 0) != (keyed == "1") {
						t.Errorf("incompatible flags %#x", flags)
					}
					sameAsJournalctl(t, path)
				})
			}
		}
	}
}
