package safefile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	text, fifo, link := filepath.Join(dir, "text"), filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	for _, err := range []error{
		os.WriteFile(text, []byte("abc"), 0o600), syscall.Mkfifo(fifo, 0o600), os.Symlink(text, link),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		text: "", link: "", dir: "is not a regular file", fifo: "is not a regular file", "/dev/null": "is not a regular file",
		dir + "/none": "no such file",
	} {
		f, err := Open(path, 0)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) || f != nil {
				t.Errorf("%s: %v, %v; want %q", path, f, err, want)
			}
			continue
		}
		if data, err := ReadAll(f, 3); err != nil || string(data) != "abc" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	f, err := Open(text, syscall.O_NOFOLLOW)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAll(f, 2); err == nil || err.Error() != "is larger than 2 bytes" {
		t.Errorf("a file that is too large: %v", err)
	}
}
