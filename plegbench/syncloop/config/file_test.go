package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// logged returns a logger and what it wrote.
func logged() (logr.Logger, *[]string) {
	var lines []string
	return funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}), &lines
}

func names(pods []*v1.Pod) []string {
	out := []string{}
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func write(t *testing.T, path, name string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Replace(minimal, "web", name, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", ".hidden"} {
		write(t, filepath.Join(dir, name), strings.TrimPrefix(name, "."))
	}
	write(t, filepath.Join(dir, "z-same-pod-as-a"), "a")
	for path, content := range map[string][]byte{
		"broken": []byte("a: ["), "config": []byte("apiVersion: v1\nkind: ConfigMap\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, path), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o700), os.Symlink("nowhere", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	log, lines := logged()
	f := &File{Interval: 20 * time.Second, Path: dir, NodeName: "n", Log: log}
	read := func(keep bool, want ...string) {
		t.Helper()
		if err := f.read(keep); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, names(f.sorted())); diff != "" {
			t.Error(diff)
		}
	}
	read(false, "a-n", "b-n", "a-n")
	all := strings.Join(*lines, "\n")
	for _, want := range []string{
		`"Could not process manifest file" "error"="` + dir + `/broken: this is neither YAML nor JSON`,
		`"Could not process manifest file" "error"="` + dir + `/folder: not a regular file`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no line with %s in\n%s", want, all)
		}
	}
	if len(*lines) != 2 {
		t.Errorf("%d lines:\n%s", len(*lines), all)
	}

	write(t, filepath.Join(dir, "broken"), "mended")
	if err := errors.Join(os.Remove(filepath.Join(dir, "z-same-pod-as-a")), os.WriteFile(filepath.Join(dir, "b"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	read(true, "a-n", "b-n", "mended-n") // b is being written
	read(false, "a-n", "mended-n")
}

// TestFileSingle has a manifest that comes, and goes with its content.
func TestFileSingle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yaml")
	log, lines := logged()
	f := &File{Path: path, NodeName: "n", Interval: 10 * time.Millisecond, Log: log}
	ctx, cancel := context.WithCancel(t.Context())
	sent := 0
	err := f.Run(ctx, func(pods []*v1.Pod) {
		switch sent++; {
		case sent == 3:
			write(t, path, "late")
		case len(pods) > 0:
			cancel()
		}
	})
	if sent < 4 || len(*lines) != 3 || !strings.Contains((*lines)[0], `"path does not exist, ignoring"`) || !errors.Is(err, context.Canceled) {
		t.Errorf("sent %d times, logged %q, ended with %v", sent, *lines, err)
	}
}

// TestFileWatches changes a folder, which is noticed before the next full reading, and replaces it, which is noticed
// with it.
func TestFileWatches(t *testing.T) {
	const interval = 2 * time.Second
	dir := filepath.Join(t.TempDir(), "manifests")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := &File{Path: dir, NodeName: "n", Interval: interval, Log: logr.Discard()}
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan string)
	ended := make(chan error)
	go func() {
		ended <- f.Run(ctx, func(pods []*v1.Pod) {
			select {
			case sent <- strings.Join(names(pods), " "):
			case <-ctx.Done():
			}
		})
	}()
	until := func(want string) {
		for got := range sent {
			if got == want {
				return
			}
		}
	}
	until("")
	write(t, filepath.Join(dir, "a"), "a")
	until("a-n")
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir+"-away", "b"), "b")
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	until("a-n b-n") // after the watch was made again, with a reading of all
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	until("b-n")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
