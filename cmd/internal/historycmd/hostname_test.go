package historycmd

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHostname reads the name from a disk that nobody trusts: no link leads off it, and nothing is read for ever.
func TestHostname(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		make func(file string) error
		want string
	}{
		{"a name", func(file string) error { return os.WriteFile(file, []byte("node-7\n"), 0o600) }, "node-7"},
		{"none", func(string) error { return nil }, ""},
		{"a link off the disk", func(file string) error { return os.Symlink(secret, file) }, ""},
		{"a link to a device", func(file string) error { return os.Symlink("/dev/zero", file) }, ""},
		{"a link up", func(file string) error { return os.Symlink("../../../../../../.."+secret, file) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "etc"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := tt.make(filepath.Join(root, "etc/hostname")); err != nil {
				t.Fatal(err)
			}
			if got := hostname(root); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
