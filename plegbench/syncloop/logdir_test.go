package syncloop

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLogFolder(t *testing.T) {
	folder := func(files ...string) string {
		dir := t.TempDir()
		for _, f := range files {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	t.Run("of another kubelet", func(t *testing.T) {
		dir := folder("pods/default_web_1/app/0.log")
		if err := claimLogs(dir, "lab"); !errors.Is(err, ErrForeignLogs) {
			t.Errorf("claimed: %v", err)
		}
		if err := removeLogs(dir, "lab"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "pods/default_web_1/app/0.log")); err != nil {
			t.Error(err)
		}
	})
	t.Run("ours", func(t *testing.T) {
		dir := filepath.Join(folder("syslog"), "log")
		for range 2 {
			if err := claimLogs(dir, "lab"); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, "pods/default_web_1"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := claimLogs(dir, "other"); err == nil {
			t.Error("another node claimed it as well")
		}
		if err := removeLogs(dir, "other"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "pods/default_web_1")); err != nil {
			t.Error("another node removed them")
		}
		if err := removeLogs(dir, "lab"); err != nil {
			t.Error(err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("left: %v %v", entries, err)
		}
	})
	t.Run("beside other logs", func(t *testing.T) {
		dir := folder("syslog")
		if err := claimLogs(dir, "lab"); err != nil {
			t.Error(err)
		}
		if err := removeLogs(dir, "lab"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "syslog")); err != nil {
			t.Error(err)
		}
	})
}
