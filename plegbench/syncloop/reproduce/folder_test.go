package reproduce

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// TestCleanup removes the folder of a run that was killed and leaves that of one that lives.
func TestCleanup(t *testing.T) {
	parent, err := os.MkdirTemp("/tmp", "kdiag-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	alive, err := newFolder(parent, "")
	if err != nil {
		t.Fatal(err)
	}
	killed, err := newFolder(parent, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.lock.Close(); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(parent, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	done, err := Cleanup(t.Context(), parent)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(syncloop.Cleaned{Folders: []string{killed.dir}}, done); diff != "" {
		t.Error(diff)
	}
	for _, dir := range []string{alive.dir, other} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("it is gone: %v", err)
		}
	}
	if _, err := os.Stat(killed.dir); !os.IsNotExist(err) {
		t.Errorf("the killed run's folder is there: %v", err)
	}
	if err := alive.close(); err != nil {
		t.Error(err)
	}
}
