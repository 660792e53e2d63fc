package fake

import (
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

// TestSameInEveryRun: ids, uids and ages do not depend on when or how often a scenario is started.
func TestSameInEveryRun(t *testing.T) {
	snapshot := func(t *testing.T) (list []string) {
		s, _ := Builtin("healthy")
		start := time.Now()
		c := serve(t, s)
		for _, sb := range c.sandboxes(t) {
			age := start.Sub(time.Unix(0, sb.GetCreatedAt()))
			list = append(list, strings.Join([]string{sb.GetId(), sb.GetMetadata().GetUid(), age.String()}, " "))
		}
		for _, container := range c.containers(t, nil) {
			age := start.Sub(time.Unix(0, container.GetCreatedAt()))
			list = append(list, container.GetId()+" "+age.String())
		}
		return list
	}
	synctest.Test(t, func(t *testing.T) {
		first := snapshot(t)
		time.Sleep(time.Hour)
		if diff := cmp.Diff(first, snapshot(t)); diff != "" {
			t.Errorf("an hour later (-first +second):\n%s", diff)
		}
	})
}
