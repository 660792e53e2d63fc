package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestDestination replaces a file as it was, and makes a new one for its owner only.
func TestDestination(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode fs.FileMode // of the file that is there; 0 for none
		want fs.FileMode
	}{
		{"new", 0, 0o600},
		{"for everybody", 0o644, 0o644},
		{"for its owner", 0o600, 0o600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "page.html")
			if tt.mode != 0 {
				if err := os.WriteFile(name, []byte("old"), tt.mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(name, tt.mode); err != nil { // whatever the umask is
					t.Fatal(err)
				}
			}
			d, err := OpenDestination("--html", name)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Write([]byte("new")); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(name)
			if info.Mode().Perm() != tt.want || string(text) != "new" || err != nil {
				t.Errorf("%v, %q, %v; want %v", info.Mode().Perm(), text, err, tt.want)
			}
		})
	}
}
