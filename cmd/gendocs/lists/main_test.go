package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// TestListsAreFresh fails when the catalogue changed and what is made of it did not follow.
func TestListsAreFresh(t *testing.T) {
	t.Chdir("../../..")
	want, err := signatures(filepath.Dir(catalogue))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(catalogue)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is stale; run make generate (-fresh +committed):\n%s", catalogue, diff)
	}
}

// TestRecipe follows CONTRIBUTING.md in a copy of the module: it adds a cause, a check, a signature and an advisory,
// runs the generators, and has a test there look for them in the pages, the completions and the reports.
func TestRecipe(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"checks", "cmd", "crictl", "internal", "journal", "plegbench"} {
		copySource(t, filepath.Join("../../..", folder), filepath.Join(dir, folder))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join("../../..", file))
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, file), data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := txtar.ParseFile("testdata/recipe.txtar")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, f := range archive.Files {
		text, err := os.ReadFile(f.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		before, after := string(text), ""
		for _, last := range []string{"\t\tlook(\"host.cgroups\"", "\t{Code: CgroupsLeaked"} { // of checks, of causes
			if i := strings.Index(before, last); i >= 0 {
				before, after = before[:i], before[i:]
			}
		}
		if err := os.WriteFile(f.Name, []byte(before+string(f.Data)+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := signatures(filepath.Dir(catalogue))
	if err := errors.Join(err, os.WriteFile(catalogue, data, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("docs", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-run=^TestAdded$", "./cmd/gendocs")
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("no tests to run")) {
		t.Errorf("%v:\n%s", err, out)
	}
}

// copySource copies a folder without its tests.
func copySource(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "e2e"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, strings.TrimPrefix(path, from)), 0o755)
		case strings.HasSuffix(path, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(filepath.Join(to, strings.TrimPrefix(path, from)), data, 0o644))
	})
	if err != nil {
		t.Fatal(err)
	}
}
