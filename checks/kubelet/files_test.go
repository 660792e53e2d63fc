package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFilesRead(t *testing.T) {
	h := newTree(t)
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("outside"), 0o600))
	h.file("data/target", "inside", "data/large", strings.Repeat("x", 2<<20+1),
		"proc/7/root/data/target", "the process's own")
	for name, target := range map[string]string{
		"absolute": "/data/target", "up": "../../../../../../data/target", "out": outside, "loop": "/data/loop",
	} {
		h.link(target, "data/"+name)
	}
	must(t, unix.Mkfifo(filepath.Join(h.root, "data/fifo"), 0o600))
	for name, want := range map[string]string{
		"/data/target": "inside", "/data/absolute": "inside", "/data/up": "inside", "/data/out": "does not exist",
		"/data/loop": "too many levels of symbolic links", "/data/large": "is larger than 2097152 bytes",
		"/data/fifo": "is not a regular file", "/data": "is not a regular file", "/data/target/x": "does not exist",
	} {
		data, err := seenBy(h.root, 0).read(name)
		got := string(data)
		if err != nil {
			got = reasonOf(err)
		}
		equal(t, want, got)
	}
	if _, err := seenBy(h.root, 0).read(""); err == nil {
		t.Error("no name is no error")
	}
	// What the process's root lacks is searched for in the host's.
	for name, want := range map[string]string{"/data/target": "the process's own", "/data/absolute": "inside"} {
		data, err := seenBy(h.root, 7).read(name)
		must(t, err)
		equal(t, want, string(data))
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\n b\tc ": "a b c", "\x1b[31mred\x00": "[31mred", "\xff": "?", "right\u202eleft": "rightleft",
		strings.Repeat("x", maxText+9): strings.Repeat("x", 149) + "..." + strings.Repeat("x", 148),
	} {
		equal(t, want, oneLine(text))
		equal(t, want, oneLine(oneLine(text)))
	}
}
