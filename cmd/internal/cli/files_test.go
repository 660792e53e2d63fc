package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestDestination replaces a file as it was, makes a new one for its owner only, and leaves nothing beside it, nor of
// one that cannot be written.
func TestDestination(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode fs.FileMode // of the file that is there; 0 for none
		want fs.FileMode // 0 for none
	}{
		{"new", 0, 0o600},
		{"for everybody", 0o644, 0o644},
		{"for its owner", 0o600, 0o600},
		{"cut short", 0, 0},
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
			if tt.want == 0 {
				_ = d.tmp.Close()
			}
			if err := d.Write([]byte("new")); (err != nil) != (tt.want == 0) {
				t.Error(err)
			}
			left := ""
			files, _ := filepath.Glob(filepath.Dir(name) + "/*") // hidden ones too
			for _, file := range files {
				info, _ := os.Stat(file)
				text, _ := os.ReadFile(file)
				left += fmt.Sprintln(info.Mode(), info.Name(), string(text))
			}
			want := ""
			if tt.want != 0 {
				want = fmt.Sprintln(tt.want, "page.html new")
			}
			if left != want {
				t.Errorf("left %q, want %q", left, want)
			}
		})
	}
}
