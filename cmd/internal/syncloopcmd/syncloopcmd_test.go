package syncloopcmd

import (
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// TestShortFlags gives flags that are short for the kubelet's, which must have the same effect.
func TestShortFlags(t *testing.T) {
	for _, tt := range []struct {
		name      string
		args      []string
		gates     map[string]bool
		verbosity int
	}{
		{"evented", []string{"--evented"}, map[string]bool{"EventedPLEG": true}, 0},
		{
			"beside other gates",
			[]string{"--feature-gates", "PLEGOnDemandRelist=false", "--evented"},
			map[string]bool{"EventedPLEG": true, "PLEGOnDemandRelist": false},
			0,
		},
		{
			"against the long way",
			[]string{"--evented=false", "--feature-gates", "EventedPLEG=true"},
			map[string]bool{"EventedPLEG": false},
			0,
		},
		{"verbosity, as app joins -v 5 and -v5", []string{"-v=5"}, nil, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts, cmd := options{kubelet: map[string][]string{}}, &cobra.Command{}
			opts.addFlags(cmd)
			testkit.Must(t, cmd.ParseFlags(tt.args), opts.check(cmd, nil))
			got, _, err := syncloop.LoadKubelet("", opts.kubelet)
			testkit.Must(t, err)
			testkit.Equal(t, "gates", tt.gates, got.FeatureGates)
			testkit.Equal(t, "verbosity", tt.verbosity, int(got.Logging.Verbosity))
		})
	}
}

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
