package journalcmd

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/journal"
)

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestInputs(t *testing.T) {
	text := filepath.Join(t.TempDir(), "kubelet.log")
	if err := os.WriteFile(text, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = pipe.Close(), writer.Close() })
	file, null := open(t, text), open(t, os.DevNull)
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
