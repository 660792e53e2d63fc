package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestListIsFresh fails when the page of a cause was added, removed or moved, and list.go was not generated.
func TestListIsFresh(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "checks", "causes")
	want, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "list.go"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("list.go is stale; run make generate (-fresh +committed):\n%s", diff)
	}
}
