package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestListsAreFresh fails when the catalogue changed and what is made of it did not follow.
func TestListsAreFresh(t *testing.T) {
	t.Chdir("../../..")
	want, err := signatures(filepath.Dir(catalogue))
	must(t, err)
	testkit.Equal(t, "make generate writes "+catalogue, string(want), testkit.Read(t, catalogue))
}

// TestRecipe follows CONTRIBUTING.md in an overlay of the module: it adds a cause, a check, a signature, an advisory,
// runs the generators, and has a test there look for them in the pages, the completions and the reports.
func TestRecipe(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/recipe.txtar")
	must(t, err)
	t.Chdir("../../..")
	root, err := os.Getwd()
	must(t, err)
	dir, files := testkit.NewTree(t), map[string]string{}
	write := func(name, text string) {
		files[filepath.Join(root, name)] = dir.Path(name)
		dir.Write(name, text)
	}
	lanes, _ := filepath.Glob("journal/signature/catalogue/*.yaml")
	for _, name := range lanes { // the generator reads all of them
		write(name, testkit.Read(t, name))
	}
	for _, f := range archive.Files {
		text, _ := os.ReadFile(f.Name) // nothing of a new file
		before, after := string(text), ""
		for _, last := range []string{"\t\tlook(\"host.cgroups\"", "\t{Code: CgroupsLeaked"} { // of checks, of causes
			if i := strings.Index(before, last); i >= 0 {
				before, after = before[:i], before[i:]
			}
		}
		write(f.Name, before+string(f.Data)+after)
	}
	data, err := signatures(filepath.Dir(dir.Path(catalogue)))
	must(t, err)
	write(catalogue, string(data))
	overlay, err := json.Marshal(map[string]any{"Replace": files})
	must(t, err)
	write("overlay.json", string(overlay))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay="+dir.Path("overlay.json"), "-vet=off",
		"-run=^TestAdded$", "./cmd/gendocs")
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("no tests to run")) {
		t.Errorf("%v:\n%s", err, out)
	}
}

var must = testkit.Must
