package config

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
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
		"broken": []byte("a: ["), "long": bytes.Repeat([]byte("#"), maxManifest+1), "config": []byte("apiVersion: v1\nkind: ConfigMap\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, path), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o700), os.Symlink("nowhere", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	log, lines := logged()
	f := NewFile(FileConfig{Interval: 20 * time.Second, Path: dir + "/", NodeName: "n", Log: log})
	var got []string
	f.relist(func(pods []*v1.Pod) {
		got = names(pods)
		if uid := pods[0].UID; uid != f.pods["default/a-n"].UID {
			t.Errorf("UID %s", uid)
		}
	})
	if diff := cmp.Diff([]string{"a-n", "b-n"}, got); diff != "" {
		t.Error(diff)
	}
	if from := f.keys[filepath.Join(dir, "z-same-pod-as-a")]; from != "default/a-n" {
		t.Errorf("the last file's pod is %q", from)
	}
	all := strings.Join(*lines, "\n")
	for _, want := range []string{
		`"Could not process manifest file" "error"="` + dir + `/broken: this is neither YAML nor JSON`,
		`"Could not process manifest file" "error"="` + dir + `/long: longer than 10 MiB`,
		`"Could not process manifest file" "error"="` + dir + `/folder: not a regular file`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no line with %s in\n%s", want, all)
		}
	}
	if len(*lines) != 3 {
		t.Errorf("%d lines:\n%s", len(*lines), all)
	}

	write(t, filepath.Join(dir, "broken"), "mended")
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	f.relist(func(pods []*v1.Pod) { got = names(pods) })
	if diff := cmp.Diff([]string{"a-n", "mended-n"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFileSingle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yaml")
	log, lines := logged()
	f := NewFile(FileConfig{Interval: 20 * time.Second, Path: path, NodeName: "n", Log: log})
	var got [][]string
	send := func(pods []*v1.Pod) { got = append(got, names(pods)) }
	f.relist(send) // missing
	write(t, path, "web")
	f.relist(send)
	if err := os.WriteFile(path, []byte("a: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	f.relist(send) // sends nothing: the pod stays
	if diff := cmp.Diff([][]string{{}, {"web-n"}}, got); diff != "" {
		t.Error(diff)
	}
	if len(*lines) != 2 || !strings.Contains((*lines)[0], `"Unable to read config path" "error"="path does not exist, ignoring"`) {
		t.Errorf("logged %q", *lines)
	}
}

func TestFileChanged(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "a")
	f := NewFile(FileConfig{Interval: 20 * time.Second, Path: dir, NodeName: "n", Log: logr.Discard()})
	var got []string
	send := func(pods []*v1.Pod) { got = append(got, strings.Join(names(pods), " ")) }
	step := func(path string, op fsnotify.Op, want, wantErr string) {
		t.Helper()
		got = nil
		err := f.changed(fsnotify.Event{Name: path, Op: op}, send)
		if text := strings.Join(got, ","); text != want {
			t.Errorf("%s of %s sent %q, want %q", op, path, text, want)
		}
		if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s of %s: error %v, want %q", op, path, err, wantErr)
		}
	}
	step(a, fsnotify.Create, "a-n", "")
	step(b, fsnotify.Create, "", `can't process config file "`+b+`"`)
	write(t, b, "b")
	step(b, fsnotify.Create, "a-n b-n", "")
	step(b, fsnotify.Chmod, "a-n b-n", "")
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	step(pipe, fsnotify.Create, "", "not a regular file") // to open it would last for ever
	step(filepath.Join(dir, ".b.swp"), fsnotify.Write, "", "")
	if err := os.WriteFile(a, []byte("a: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	step(a, fsnotify.Write, "", "neither YAML nor JSON")
	step(a, fsnotify.Rename, "b-n", "")
	step(a, fsnotify.Remove, "", "")
}

// TestFileWatches changes a folder, which is noticed before the next full reading, and replaces it, which is noticed
// with it.
func TestFileWatches(t *testing.T) {
	const interval = 2 * time.Second
	dir := filepath.Join(t.TempDir(), "manifests")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := NewFile(FileConfig{Path: dir, NodeName: "n", Interval: interval, Log: logr.Discard()})
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

func TestFileRescans(t *testing.T) {
	log, lines := logged()
	path := filepath.Join(t.TempDir(), "missing")
	f := NewFile(FileConfig{Interval: 10 * time.Millisecond, Path: path, NodeName: "n", Log: log})
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
	if sent < 4 || len(*lines) != 3 || !errors.Is(err, context.Canceled) {
		t.Errorf("sent %d times, %d lines, ended with %v", sent, len(*lines), err)
	}
}
