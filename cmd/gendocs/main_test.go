package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocsAreFresh fails when a command, a cause or a check changed and its page did not.
func TestDocsAreFresh(t *testing.T) {
	dir := t.TempDir()
	if err := generate(dir); err != nil {
		t.Fatal(err)
	}
	pages, _ := filepath.Glob(filepath.Join(dir, "*.md"))
	below, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	for _, fresh := range append(pages, below...) {
		name, err := filepath.Rel(dir, fresh)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(fresh)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := os.ReadFile(filepath.Join("..", "..", "docs", name)) // it may be missing
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("docs/%s is stale; run make generate (-fresh +committed):\n%s", name, diff)
		}
	}
	if len(pages) < 4 || len(below) < 60 {
		t.Errorf("%d pages and %d below", len(pages), len(below))
	}
}
