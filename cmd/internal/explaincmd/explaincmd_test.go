package explaincmd

import (
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/stacks"
	"github.com/kdiag/kdiag/internal/testkit"
)

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
	before, rest, _ := strings.Cut(testkit.Read(t, file), begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %q", file, end)
	}
	testkit.Golden(t, file, before+begin+table+"\n"+end+after)
}
