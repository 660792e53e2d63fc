package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadLimited reads files that are shorter and longer than a page, and than the limit.
func TestReadLimited(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 100, 4 << 10, 20_000} {
		text := strings.Repeat("0123456789", size/10+1)[:size]
		must(t, os.WriteFile(name, []byte(text), 0o600))
		for _, limit := range []int{1, 4 << 10, 5000, 64 << 10} {
			got, err := readLimited(name, limit)
			must(t, err)
			equal(t, "the text", text[:min(size, limit)], got)
		}
	}
	for _, no := range []string{t.TempDir(), name + "/x", name + ".x"} {
		if got, err := readLimited(no, 100); err == nil || !strings.Contains(err.Error(), no) {
			t.Errorf("%s: %q, error %v", no, got, err)
		}
	}
}

func TestKernelRelease(t *testing.T) {
	n := newNode(t)
	equal(t, "without the file", "", KernelRelease(n.root))
	n.write("proc/sys/kernel/osrelease", "6.6.141.1-1.azl3\n")
	equal(t, "with it", "6.6.141.1-1.azl3", KernelRelease(n.root))
}
