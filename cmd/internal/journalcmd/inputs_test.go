package journalcmd

import (
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/journal"
)

func TestInputs(t *testing.T) {
	open := func(f *os.File, err error) *os.File {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	file, null := open(os.CreateTemp(t.TempDir(), "")), open(os.Open(os.DevNull))
	pipe, writer, err := os.Pipe()
	open(pipe, err)
	open(writer, err)
	node := []journal.Input{{Kind: journal.Root, Path: "/host"}}
	stdin := []journal.Input{{Kind: journal.Stream, Path: "-"}}
	for _, tt := range []struct {
		name  string
		in    io.Reader
		opts  options
		files []string
		want  []journal.Input
		own   bool
	}{
		{"under cron", null, options{}, nil, node, true},
		{"a file as input", file, options{}, nil, stdin, false},
		{"a pipe", pipe, options{}, nil, stdin, false},
		{"the dash", null, options{}, []string{"-"}, stdin, false},
		{
			"files, a folder and patterns before a pipe", pipe,
			options{files: []string{"s@*"}, directories: []string{"d"}},
			[]string{"a"},
			[]journal.Input{{Path: "a"}, {Kind: journal.Glob, Path: "s@*"}, {Kind: journal.Directory, Path: "d"}},
			false,
		},
		{"a disk", pipe, options{root: "/mnt"}, nil, []journal.Input{{Kind: journal.Root, Path: "/mnt"}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := cli.Env{In: tt.in, Root: "/host", Now: threeAtNight}
			r, err := tt.opts.reading(env, tt.files)
			got := r.Inputs
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(journal.Input{}, "Reader")); diff != "" ||
				tt.opts.timed != tt.own || err != nil {
				t.Errorf("timed %v, want %v; %v; inputs (-want +got):\n%s", tt.opts.timed, tt.own, err, diff)
			}
			for _, in := range got {
				if (in.Reader != nil) != (in.Kind == journal.Stream) {
					t.Errorf("%+v: a reader belongs to a stream", in)
				}
			}
		})
	}
}
