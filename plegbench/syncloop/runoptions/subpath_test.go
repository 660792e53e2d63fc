package runoptions

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/nodebox"
)

// inVolume makes a volume beside a folder that is not of it, both with files in them, and binds subPaths of it.
func inVolume(t *testing.T) (volume string, bindAt func(subPath string, n int) (string, error)) {
	t.Helper()
	if os.Geteuid() != 0 {
		nodebox.Need(t, "mounting needs root")
	}
	dir := t.TempDir()
	volume = filepath.Join(dir, "volume")
	for _, d := range []string{"volume/sub/deep", "outside"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{"volume/sub/file": "inside", "outside/file": "precious"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"rel-out": "../outside", "abs-out": filepath.Join(dir, "outside"), "rel-in": "sub", "sub/up": "..", "proc": "/proc/self/root",
		"nowhere": "../outside/new", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	bound := map[string]bool{}
	t.Cleanup(func() {
		for at := range bound {
			_ = unix.Unmount(at, unix.UMOUNT_NOFOLLOW) // not all are mounted
		}
	})
	return volume, func(subPath string, n int) (string, error) {
		at := filepath.Join(dir, "volume-subpaths", "v", "c", strconv.Itoa(n))
		bound[at] = true
		return bindSubPath(volume, subPath, at)
	}
}

func TestBindSubPath(t *testing.T) {
	volume, bindAt := inVolume(t)
	for i, subPath := range []string{"sub", "rel-in", "sub/up/sub/", "sub/deep"} {
		at, err := bindAt(subPath, i)
		if err != nil {
			t.Fatalf("%s: %v", subPath, err)
		}
		path := filepath.Join(at, "file")
		if subPath == "sub/deep" {
			path = at
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", subPath, err)
		}
	}
	at, err := bindAt("sub/file", 10)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(at); err != nil || string(text) != "inside" {
		t.Errorf("a file: %q, %v", text, err)
	}
	if err := os.Chmod(volume, 0o2770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if _, err := bindAt("made/for/it", 11); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"made", "made/for", "made/for/it"} {
		if info, err := os.Stat(filepath.Join(volume, dir)); err != nil || info.Mode().Perm() != 0o770 || info.Mode()&os.ModeSetgid == 0 {
			t.Errorf("%s: %v, %v, want the volume's mode", dir, info, err)
		}
	}
}

func TestBindSubPathNeverLeavesTheVolume(t *testing.T) {
	volume, bindAt := inVolume(t)
	for i, subPath := range []string{
		"rel-out", "rel-out/file", "abs-out", "abs-out/file", "proc", "proc/etc", "nowhere", "nowhere/x", "loop", "rel-out/made",
	} {
		if at, err := bindAt(subPath, i); err == nil {
			t.Errorf("%s was mounted at %s", subPath, at)
		}
	}
	left, err := os.ReadDir(filepath.Join(volume, "..", "outside"))
	if err != nil || len(left) != 1 {
		t.Errorf("outside is now %v, %v", left, err)
	}
}

// TestBindSubPathAgain restarts a container whose subPath is still there, and then one where it is another file.
func TestBindSubPathAgain(t *testing.T) {
	volume, bindAt := inVolume(t)
	count := func() int {
		text, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), filepath.Join(filepath.Dir(volume), "volume-subpaths"))
	}
	for range 3 {
		if _, err := bindAt("sub/file", 0); err != nil {
			t.Fatal(err)
		}
		if n := count(); n != 1 {
			t.Errorf("%d mounts, want one", n)
		}
	}
	file := filepath.Join(volume, "sub", "file")
	if err := os.Rename(file, file+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	at, err := bindAt("sub/file", 0)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(at); err != nil || !info.IsDir() || count() != 1 {
		t.Errorf("got %v, %v, %d mounts, want the folder, once", info, err, count())
	}
}

func FuzzSubPath(f *testing.F) {
	for _, s := range []string{"a", "a/b", "..", "a/../b", "/", "$(UP)", "a/$(UP)/b", "$(NO)", ".", "a//..b"} {
		f.Add(s)
	}
	env := map[string]string{"UP": "..", "ROOT": "/"}
	f.Fuzz(func(t *testing.T, s string) {
		for _, vm := range []v1.VolumeMount{{SubPath: s}, {SubPathExpr: s}} {
			got, err := subPathOf(&vm, env)
			if err == nil && got != "" && !filepath.IsLocal(got) {
				t.Errorf("%+v leads to %q", vm, got)
			}
		}
	})
}
