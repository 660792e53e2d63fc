package main

import (
	"bytes"
	"encoding/json"
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
	must(t, err)
	got, err := os.ReadFile(catalogue)
	must(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is stale; run make generate (-fresh +committed):\n%s", catalogue, diff)
	}
}

// TestRecipe follows CONTRIBUTING.md in an overlay of the module: it adds a cause, a check, a signature, an advisory,
// runs the generators, and has a test there look for them in the pages, the completions and the reports.
func TestRecipe(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/recipe.txtar")
	must(t, err)
	t.Chdir("../../..")
	root, err := os.Getwd()
	must(t, err)
	dir, files := t.TempDir(), map[string]string{}
	write := func(name string, data []byte) {
		files[filepath.Join(root, name)] = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	lanes, _ := filepath.Glob("journal/signature/catalogue/*.yaml")
	for _, name := range lanes { // the generator reads all of them
		data, err := os.ReadFile(name)
		must(t, err)
		write(name, data)
	}
	for _, f := range archive.Files {
		text, _ := os.ReadFile(f.Name) // nothing of a new file
		before, after := string(text), ""
		for _, last := range []string{"\t\tlook(\"host.cgroups\"", "\t{Code: CgroupsLeaked"} { // of checks, of causes
			if i := strings.Index(before, last); i >= 0 {
				before, after = before[:i], before[i:]
			}
		}
		write(f.Name, []byte(before+string(f.Data)+after))
	}
	data, err := signatures(filepath.Join(dir, filepath.Dir(catalogue)))
	must(t, err)
	write(catalogue, data)
	overlay, err := json.Marshal(map[string]any{"Replace": files})
	must(t, err)
	write("overlay.json", overlay)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay="+filepath.Join(dir, "overlay.json"), "-vet=off",
		"-run=^TestAdded$", "./cmd/gendocs")
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("no tests to run")) {
		t.Errorf("%v:\n%s", err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
