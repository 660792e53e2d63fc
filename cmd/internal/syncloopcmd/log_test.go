package syncloopcmd

import (
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLogLines(t *testing.T) {
	var l logLines
	for i := range 2 * keptLines {
		_, _ = fmt.Fprintf(&l, "line %d\n", i)
	}
	_, _ = io.WriteString(&l, "last\nwords\n")
	got := l.newest()
	if diff := cmp.Diff([]string{"last\n", "words\n"}, got[len(got)-2:]); diff != "" || len(got) != keptLines {
		t.Errorf("%d lines, %s", len(got), diff)
	}
}
