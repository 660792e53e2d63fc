package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCatalogueIsFresh fails when the catalogue changed and catalogue.json did not follow.
func TestCatalogueIsFresh(t *testing.T) {
	const dir = "../../../journal/signature"
	want, err := document(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(dir + "/catalogue.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("catalogue.json is stale, run make generate (-want +got):\n%s", diff)
	}
}
