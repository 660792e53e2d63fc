package explaincmd

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/stacks"
)

var update = flag.Bool("update", false, "rewrite the table of pictures in docs/stacks.md")

// TestPicturesAreDocumented checks that docs/stacks.md lists the known pictures, and that the causes which they support
// exist.
func TestPicturesAreDocumented(t *testing.T) {
	const file, begin, end = "../../../docs/stacks.md", "<!-- pictures -->\n", "<!-- end of pictures -->"
	table := "\n| name | what it is | of | supports |\n|---|---|---|---|\n"
	for _, p := range stacks.Pictures() {
		table += "| `" + p.ID + "` | " + p.Title + " | " + p.Role + " | " + strings.Join(p.Causes, ", ") + " |\n"
		for _, code := range p.Causes {
			if _, ok := causes.Doc(code); !ok {
				t.Errorf("%s supports %s, which is no cause", p.ID, code)
			}
		}
		if p.Means == "" || len(p.Links) == 0 {
			t.Errorf("%s has no text or no source", p.ID)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(data), begin)
	got, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %q", file, end)
	}
	if *update {
		got = table + "\n"
		if err := os.WriteFile(file, []byte(before+begin+got+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(table+"\n", got); diff != "" {
		t.Errorf("%s is stale; run with -update (-want +got):\n%s", file, diff)
	}
}
