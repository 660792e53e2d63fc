package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestListsAreFresh fails when the page of a cause or the catalogue changed and what is made of it did not follow.
func TestListsAreFresh(t *testing.T) {
	t.Chdir("../../..")
	for name, text := range lists() {
		want, err := text(filepath.Dir(name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is stale; run make generate (-fresh +committed):\n%s", name, diff)
		}
	}
}
