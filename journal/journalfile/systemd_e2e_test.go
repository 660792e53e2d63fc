//go:build e2e

package journalfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sameAsJournalctl compares all entries with a message in a file with what journalctl reads in it.
func sameAsJournalctl(t *testing.T, path string) {
	t.Helper()
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

// exportStream makes an export stream with everything that fields may hold.
func exportStream(entries int) io.Reader {
	var b bytes.Buffer
	for i := range entries {
		fmt.Fprintf(&b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=0123456789abcdef0123456789abcd%02x\n"+
			"_SYSTEMD_UNIT=kubelet.service\nPRIORITY=6\n_PID=%d\n", t0+i*1000, 5_000_000+i*1000, 0xe1+2*i/entries, 1000+i%3)
		for _, f := range [][]string{
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
		}[i%7] {
			name, value, _ := strings.Cut(f, "=")
			if strings.ContainsAny(value, "\n\x00\x1b") { // written as binary
				size := binary.LittleEndian.AppendUint64(nil, uint64(len(value)))
				f = name + "\n" + string(size) + value
			}
			b.WriteString(f + "\n")
		}
		b.WriteByte('\n')
	}
	return &b
}

// TestEndToEndJournalctl compares with journalctl what is read of files that systemd wrote, in each mode that its
// environment selects, and of files that the builder wrote. systemd before 254 ignores the variable for the compression
// and takes ZSTD; 0 disables all.
func TestEndToEndJournalctl(t *testing.T) {
	for mode, w := range modes(1000) {
		t.Run(mode, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.journal")
			w.save(t, path)
			sameAsJournalctl(t, path)
		})
	}
	for i := range 16 {
		compact, keyed, compress := i&1, i>>1&1, []string{"ZSTD", "LZ4", "XZ", "0"}[i>>2]
		t.Run(fmt.Sprintf("systemd/compact=%d/keyed=%d/%s", compact, keyed, compress), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.journal")
			cmd := exec.CommandContext(t.Context(), "/lib/systemd/systemd-journal-remote", "-o", path, "-")
			cmd.Stdin = exportStream(3000)
			cmd.Env = append(os.Environ(), fmt.Sprint("SYSTEMD_JOURNAL_COMPACT=", compact),
				fmt.Sprint("SYSTEMD_JOURNAL_KEYED_HASH=", keyed), "SYSTEMD_JOURNAL_COMPRESS="+compress)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
			}
			flags := open(t, path).img.head.incompatible
			if (flags&flagCompact != 0) != (compact == 1) || (flags&flagKeyed != 0) != (keyed == 1) {
				t.Errorf("incompatible flags %#x", flags)
			}
			sameAsJournalctl(t, path)
		})
	}
}
