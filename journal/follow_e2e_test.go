//go:build e2e

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// journalRemote has systemd write what comes in into a journal file, until end is called.
func journalRemote(t *testing.T, path string) (in io.Writer, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/lib/systemd/systemd-journal-remote", "-o", path, "-")
	pipe, err := cmd.StdinPipe()
	must(t, errors.Join(err, cmd.Start()))
	return pipe, func() { must(t, errors.Join(pipe.Close(), cmd.Wait())) }
}

// TestEndToEndFollower follows what systemd writes of a kubelet's log, over rotation and vacuum.
func TestEndToEndFollower(t *testing.T) {
	root := t.TempDir()
	_, clock, same := follower(t, root)
	path := filepath.Join(root, "var/log/journal/0123456789abcdef0123456789abcdef/system.journal")
	archive := filepath.Join(filepath.Dir(path), "system@1.journal")
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))

	text := unpacked(t, "testdata/real/kubelet-1.36-containerd-frozen.log.zst")
	const start, batch, rotated = 4200, 25, 4300 // the incident begins after the start of the kubelet
	in, end := journalRemote(t, path)
	at, written, seen := time.Time{}, 0, ""
	for line := range strings.Lines(strings.TrimSpace(text)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		if stamp, err := time.Parse("20060102 15:04:05.000000", "2026"+line[1:min(21, len(line))]); err == nil {
			at = stamp
		}
		_, err := fmt.Fprintf(in, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_HOSTNAME=n1\n_PID=30256\n"+
			"_BOOT_ID=0123456789abcdef0123456789abcdef\n_SYSTEMD_UNIT=kubelet.service\nMESSAGE=%s\n\n",
			at.UnixMicro(), at.UnixMicro()-1e15, line)
		must(t, err)
		if written++; written < start || written%batch != 0 {
			continue
		}
		late := time.Now().Add(time.Minute)
		for n := 0; n < written; time.Sleep(10 * time.Millisecond) { // until they are in the file
			if time.Now().After(late) {
				t.Fatalf("%d entries of %d", n, written)
			}
			if r, err := Read(t.Context(), Options{Inputs: []Input{{Kind: Root, Path: root}}, Now: now}); err == nil {
				n = int(r.Lines)
			}
		}
		*clock = at
		r := same(fmt.Sprintf("after %d entries", written))
		same("once more")
		seen += fmt.Sprint(briefs(r))
		if written == rotated {
			must(t, os.Rename(path, archive))
			same("rotated")
			end()
			same("archived")
			in, end = journalRemote(t, path)
		}
	}
	end()
	if !strings.Contains(seen, "startup") || !strings.Contains(seen, "incident") {
		t.Errorf("the reports held only%s", seen)
	}
	must(t, os.Remove(archive))
	same("vacuumed")
}
