package volumemanager

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
)

// visible reads what a container would see: the files by the names at the top that do not begin with dots, and their
// modes.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		testkit.Must(t, err)
		err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			info, _ := d.Info()
			got[e.Name()+strings.TrimPrefix(path, real)] = info.Mode().Perm().String() + " " + string(data)
			return err
		})
		testkit.Must(t, err)
	}
	return got
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestWriteSwapsAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	steps := []struct {
		files files
		want  map[string]string
	}{
		{files: files{}, want: map[string]string{}},
		{
			files: files{"a": {data: "1", mode: 0o644}, "d/e/f": {data: "2", mode: 0o400}, "./g": {mode: 0o777}},
			want:  map[string]string{"a": "-rw-r--r-- 1", "d/e/f": "-r-------- 2", "g": "-rwxrwxrwx "},
		},
		{
			files: files{"a": {data: "new", mode: 0o644}, "d/x": {data: "3", mode: 0o644}},
			want:  map[string]string{"a": "-rw-r--r-- new", "d/x": "-rw-r--r-- 3"},
		},
		{files: files{"b": {}, "b/c": {}}, want: nil}, // a file cannot be a folder too
		{files: files{"../x": {}}, want: nil},
		{files: files{}, want: map[string]string{}},
	}
	testkit.Must(t, os.Symlink("left by a writer that was killed", filepath.Join(dir, dataLink+"_tmp")))
	for i, step := range steps {
		before := visible(t, dir)
		if err := write(root, step.files, func() error { return nil }); (err != nil) != (step.want == nil) {
			t.Fatalf("step %d: %v", i, err)
		} else if err != nil {
			step.want = before
		}
		testkit.Equal(t, fmt.Sprint("step ", i), step.want, visible(t, dir))
		if stamps, _ := filepath.Glob(filepath.Join(dir, "..2*")); len(stamps) != 1 {
			t.Errorf("step %d: folders %v, want one", i, stamps)
		}
	}
}

// TestWriteStaysInside has a volume whose links lead out of it.
func TestWriteStaysInside(t *testing.T) {
	outside := t.TempDir()
	testkit.Write(t, filepath.Join(outside, "a"), "precious")
	for name, target := range map[string]string{
		dataLink: outside, "a": filepath.Join(outside, "a"), dataLink + "_tmp": outside,
	} {
		dir := t.TempDir()
		testkit.Must(t, os.Symlink(target, filepath.Join(dir, name)))
		_ = write(openRoot(t, dir), files{"a": {data: "1", mode: 0o644}}, func() error { return nil })
		testkit.Equal(t, name, map[string]string{"a": "-rw-r--r-- precious"}, visible(t, outside))
	}
}

func FuzzValidPath(f *testing.F) {
	for _, s := range []string{
		"", ".", "a", "a/b", "..", "a/..", "/", "/etc/passwd", "../x", "a/../../x", "..data", "..x/y", "a//b",
		"./..x", "\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		clean, err := validPath(name)
		if err == nil && (!filepath.IsLocal(clean) || clean == "." || strings.HasPrefix(clean, "..")) {
			t.Errorf("%q is taken, as %q", name, clean)
		}
	})
}

// TestTokenLife requests a token of one hour repeatedly: it is the same for 48 minutes, and then a new one.
func TestTokenLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.New()
		issued, down := 0, false
		client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			if down {
				return true, nil, errors.New("the API server is down")
			}
			issued++
			return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
				Token: fmt.Sprint("token-", issued), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
			}}, nil
		})
		o := NewAPIObjects(client)
		start := time.Now()
		at := func(minute int, audience, want string) {
			t.Helper()
			time.Sleep(time.Until(start.Add(time.Duration(minute) * time.Minute)))
			spec := authenticationv1.TokenRequestSpec{Audiences: []string{audience}}
			got, err := o.ServiceAccountToken(t.Context(), "shop", "sa", &authenticationv1.TokenRequest{Spec: spec})
			if got != want || (err != nil) != (want == "") {
				t.Errorf("at minute %d: %q, %v, want %q", minute, got, err, want)
			}
		}
		at(0, "a", "token-1")
		at(47, "a", "token-1")
		at(49, "a", "token-2")
		at(50, "b", "token-3")
		down = true
		at(49+47, "a", "token-2")
		at(49+49, "a", "")
	})
}

func TestFileObjects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "objects")
	o := NewFileObjects(dir)
	testkit.Write(t, filepath.Join(dir, "all.yaml"), testkit.Read(t, "testdata/two.yaml"))
	testkit.Write(t, filepath.Join(dir, ".hidden.yaml"), "kind: nonsense")
	testkit.Write(t, filepath.Join(dir, "notes.txt"), "kind: nonsense")
	if err := o.Get(t.Context(), "default", "settings", &v1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("%v, want not found", err)
	}
	var s v1.Secret
	testkit.Must(t, o.Get(t.Context(), "default", "key", &s))
	testkit.Equal(t, "secret", map[string][]byte{"a": []byte("one"), "b": []byte("two")}, s.Data)
	var c v1.ConfigMap
	if err := o.Get(t.Context(), "shop", "settings", &c); err != nil || c.Data["mode"] != "fast" || len(c.BinaryData["blob"]) != 3 {
		t.Errorf("config map: %+v, %v", c, err)
	}
	var a v1.ServiceAccount
	if err := o.Get(t.Context(), "default", "clerk", &a); err != nil || len(a.ImagePullSecrets) != 1 {
		t.Errorf("service account: %+v, %v", a, err)
	}
}
