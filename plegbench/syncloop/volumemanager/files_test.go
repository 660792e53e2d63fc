package volumemanager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const twoObjects = `# a comment alone is a document
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {mode: fast}
binaryData: {blob: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
data: {a: b25l}
stringData: {b: two}
---
apiVersion: v1
kind: Pod
metadata: {name: passed-over}
`

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFileObjects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "objects")
	o := NewFileObjects(dir)
	if _, err := o.Secret(t.Context(), "default", "key"); !apierrors.IsNotFound(err) {
		t.Errorf("without a folder: %v, want not found", err)
	}
	put(t, filepath.Join(dir, "all.yaml"), twoObjects)
	put(t, filepath.Join(dir, ".hidden.yaml"), "kind: nonsense")
	put(t, filepath.Join(dir, "notes.txt"), "kind: nonsense")
	s, err := o.Secret(t.Context(), "default", "key")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte{"a": []byte("one"), "b": []byte("two")}, s.Data); diff != "" {
		t.Errorf("secret (-want +got):\n%s", diff)
	}
	s.Data["a"] = []byte("scribbled")
	if again, _ := o.Secret(t.Context(), "default", "key"); string(again.Data["a"]) != "one" {
		t.Errorf("a caller's change came back: %q", again.Data["a"])
	}
	c, err := o.ConfigMap(t.Context(), "shop", "settings")
	if err != nil || c.Data["mode"] != "fast" || len(c.BinaryData["blob"]) != 3 {
		t.Errorf("config map: %+v, %v", c, err)
	}
	if _, err := o.ConfigMap(t.Context(), "default", "settings"); !apierrors.IsNotFound(err) {
		t.Errorf("in another namespace: %v, want not found", err)
	}
	if _, err := o.ServiceAccountToken(t.Context(), "shop", "sa", &authenticationv1.TokenRequest{}); err == nil ||
		!strings.Contains(err.Error(), "API server") {
		t.Errorf("a token: %v, want an error that names what is missing", err)
	}
}

func TestFileObjectsChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.json")
	o := NewFileObjects(dir)
	for _, value := range []string{"1", "2"} {
		put(t, path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"`+value+`"}}`)
		when := time.Unix(1_000_000_000+int64(value[0]), 0)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
		c, err := o.ConfigMap(t.Context(), "default", "c")
		if err != nil || c.Data["k"] != value {
			t.Fatalf("got %+v, %v, want %s", c, err, value)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := o.ConfigMap(t.Context(), "default", "c"); !apierrors.IsNotFound(err) {
		t.Errorf("after it went: %v, want not found", err)
	}
}

func TestFileObjectsTrouble(t *testing.T) {
	good := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n---\n"
	for bad, want := range map[string]string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndate: {}\n":  "unknown field",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {a: 1}\n": "cannot unmarshal",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n":                   "metadata.name is missing",
		"apiVersion: apps/v1\nkind: Deployment\n":                           "only ConfigMap and Secret",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n":         "is there twice",
		"{": "document 2",
	} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "f.yaml"), good+bad)
		o := NewFileObjects(dir)
		if _, err := o.ConfigMap(t.Context(), "default", "good"); err != nil {
			t.Errorf("%q: the good document is lost: %v", bad, err)
		}
		_, err := o.Secret(t.Context(), "default", "x")
		if err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.yaml") {
			t.Errorf("%q: got %v, want %q and the file's name", bad, err, want)
		}
	}
}

func FuzzObjectFile(f *testing.F) {
	f.Add([]byte(twoObjects))
	f.Add([]byte("{"))
	f.Add([]byte("---\n---\n"))
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {a: 1}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := newParsed()
		_ = p.add(data)
		for key, c := range p.configMaps {
			if key != c.Namespace+"/"+c.Name || c.Name == "" || c.Namespace == "" {
				t.Errorf("%q holds %s/%s", key, c.Namespace, c.Name)
			}
		}
		for key, s := range p.secrets {
			if key != s.Namespace+"/"+s.Name || s.StringData != nil {
				t.Errorf("%q holds %s/%s, %v", key, s.Namespace, s.Name, s.StringData)
			}
		}
	})
}
