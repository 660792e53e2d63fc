package host

import (
	"os"
	"testing"
)

func TestKernelRelease(t *testing.T) {
	root := t.TempDir()
	if got := KernelRelease(root); got != "" {
		t.Errorf("without the file: %q", got)
	}
	must(t, os.MkdirAll(root+"/proc/sys/kernel", 0o755))
	must(t, os.WriteFile(root+"/proc/sys/kernel/osrelease", []byte("6.6.141.1-1.azl3\n"), 0o644))
	if got := KernelRelease(root); got != "6.6.141.1-1.azl3" {
		t.Errorf("%q", got)
	}
}
