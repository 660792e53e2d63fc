//go:build e2e

package bundle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEndToEndTar has tar unpack what was packed.
func TestEndToEndTar(t *testing.T) {
	roundTrip(t, func(format string, want map[string]string, packed []byte, _ *Manifest) {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "tar", "-x", map[string]string{Zst: "--zstd", Tgz: "-z"}[format], "-C", dir)
		cmd.Stdin = bytes.NewReader(packed)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		for name, text := range want {
			if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != text {
				t.Errorf("%s: %s differs: %v", format, name, err)
			}
		}
	})
}
