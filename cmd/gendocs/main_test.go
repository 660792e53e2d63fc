package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestDocsAreFresh fails when a command, a cause or a check changed and its page did not.
func TestDocsAreFresh(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, generate(dir))
	pages, _ := filepath.Glob(filepath.Join(dir, "*.md"))
	below, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	for _, fresh := range append(pages, below...) {
		name, err := filepath.Rel(dir, fresh)
		testkit.Must(t, err)
		got, _ := os.ReadFile(filepath.Join("..", "..", "docs", name)) // it may be missing
		testkit.Equal(t, "make generate writes docs/"+name, testkit.Read(t, fresh), string(got))
	}
	if len(pages) < 4 || len(below) < 60 {
		t.Errorf("%d pages and %d below", len(pages), len(below))
	}
}
