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
	if err := os.WriteFile(outside, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.file("data/target", "inside")
	h.link("/data/target", "data/absolute")
	h.link("../../../../../../data/target", "data/up")
	h.link(outside, "data/out")
	h.link("/data/loop", "data/loop")
	h.file("data/large", strings.Repeat("x", 2<<20+1))
	h.file("proc/7/root/data/target", "the process's own")
	if err := unix.Mkfifo(filepath.Join(h.root, "data/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := seenBy(h.root, 0)
	for name, want := range map[string]string{
		"/data/target": "inside", "/data/absolute": "inside", "/data/up": "inside", "/data/out": "does not exist",
		"/data/loop": "too many levels of symbolic links", "/data/large": "is larger than 2097152 bytes",
		"/data/fifo": "is not a regular file", "/data": "is not a regular file", "/data/target/x": "does not exist", "": "no such file or directory",
	} {
		data, err := host.read(name)
		got := string(data)
		if err != nil {
			got = reasonOf(err)
		}
		if got != want && !(name == "" && err != nil) {
			t.Errorf("%s: %q, want %q", name, got[:min(len(got), 100)], want)
		}
	}
	if data, err := seenBy(h.root, 7).read("/data/target"); string(data) != "the process's own" {
		t.Errorf("%q, error %v", data, err)
	}
	if data, err := seenBy(h.root, 7).read("/data/absolute"); string(data) != "inside" {
		t.Errorf("what the process's root has not is looked for in the host's: %q, error %v", data, err)
	}
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\n b\tc ": "a b c", "\x1b[31mred\x00": "[31mred", "\xff": "?", strings.Repeat("x", maxText+9): strings.Repeat("x", 149) + "..." + strings.Repeat("x", 148),
		"right\u202eleft": "rightleft",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if again := oneLine(oneLine(text)); len(text) <= maxText && again != want {
			t.Errorf("%q changes again: %q", text, again)
		}
	}
}
