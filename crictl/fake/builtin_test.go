package fake

import (
	"io/fs"
	"testing"
)

func TestBuiltins(t *testing.T) {
	files, err := fs.Glob(scenarioFiles, "scenarios/*.yaml")
	if err != nil || len(files) != len(Names()) {
		t.Errorf("%d embedded files and %d names (%v)", len(files), len(Names()), err)
	}
	summaries := map[string]bool{}
	for i, s := range Builtins() {
		if want := Names()[i]; s.Name != want {
			t.Errorf("file %s.yaml says its name is %s", want, s.Name)
		}
		if (s.Cause == "") != (s.Name == "healthy") {
			t.Errorf("%s: cause %q", s.Name, s.Cause)
		}
		if s.Summary == "" || len(s.Summary) > 80 || summaries[s.Summary] {
			t.Errorf("%s: summary %q is empty, long or used twice", s.Name, s.Summary)
		}
		summaries[s.Summary] = true
	}
}
