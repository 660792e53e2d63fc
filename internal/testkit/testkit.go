// Package testkit has what tests of several packages share. Only tests use it.
package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// Update is the flag with which tests write their goldens, rather than compare with them.
var Update = flag.Bool("update", false, "write the goldens of the tests that run")

// Must ends a test that cannot go on.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Equal compares whole values.
func Equal(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Text is an error's text, empty without an error.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Contains fails the test unless got contains want.
func Contains(t testing.TB, what, want, got string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: %q does not contain %q", what, got, want)
	}
}

// Failed checks for an error that contains a text; none for no text.
func Failed(t testing.TB, what string, err error, text string) {
	t.Helper()
	if got := Text(err); (got == "") != (text == "") || !strings.Contains(got, text) {
		t.Errorf("%s: error %q, want %q", what, got, text)
	}
}

// Eventually waits until a condition holds, for a minute.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Read reads a file, such as one of testdata.
func Read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	Must(t, err)
	return string(text)
}

// Write writes a file, and makes the folders above it.
func Write(t testing.TB, file, text string) {
	t.Helper()
	Must(t, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644))
}

// Golden compares a text with a file, which -update writes.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if *Update {
		Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	Equal(t, file+" (written by -update)", Read(t, file), got)
}

// Archive compares each file of an archive with what rewrite makes of it. With -update it is written so.
func Archive(t *testing.T, path string, rewrite func(t *testing.T, text string) string) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	Must(t, err)
	if len(archive.Files) == 0 {
		t.Fatal(path, "has no files")
	}
	for i, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) {
			archive.Files[i].Data = []byte(rewrite(t, string(f.Data)))
			if !*Update {
				Equal(t, path, string(f.Data), string(archive.Files[i].Data))
			}
		})
	}
	if *Update {
		Must(t, os.WriteFile(path, txtar.Format(archive), 0o644))
	}
}

// Bubble runs a subtest in fake time.
func Bubble(t *testing.T, name string, run func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
}

// Within returns a context that ends after so long, or with the test.
func Within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// JSON writes a value as the documents of kdiag are written, with an indent.
func JSON(t testing.TB, v any, indent string) string {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	Must(t, e.Encode(v))
	return out.String()
}

// A Tree is a folder that stands for the root of a host, or for another folder with files.
type Tree struct {
	testing.TB
	Root string
}

// NewTree returns an empty tree that is removed when the test ends.
func NewTree(t testing.TB) Tree { return Tree{t, t.TempDir()} }

// Path returns the path of a file, and makes the folders above it.
func (h Tree) Path(name string) string {
	h.Helper()
	file := filepath.Join(h.Root, name)
	Must(h, os.MkdirAll(filepath.Dir(file), 0o755))
	return file
}

// Write makes files, of which each name is followed by the content. All may be run.
func (h Tree) Write(namesAndTexts ...string) {
	h.Helper()
	for pair := range slices.Chunk(namesAndTexts, 2) {
		Must(h, os.WriteFile(h.Path(pair[0]), []byte(pair[1]), 0o755))
	}
}

// Link makes a symbolic link.
func (h Tree) Link(name, target string) {
	h.Helper()
	Must(h, os.Symlink(target, h.Path(name)))
}
