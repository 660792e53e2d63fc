package agentcmd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// TestPublish gives an archive its name when it is whole, and leaves nothing of one that is not.
func TestPublish(t *testing.T) {
	failed := errors.New("interrupted")
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"whole", nil, []string{"archive"}},
		{"cut short", failed, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			f, err := os.Create(filepath.Join(dir, "archive.part"))
			must(t, err)
			if err := publish(f, filepath.Join(dir, "archive"), tt.err); !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			var left []string
			entries, err := os.ReadDir(dir)
			must(t, err)
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if diff := cmp.Diff(tt.want, left); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// lines counts the writes of a log.
type lines []string

func (l *lines) Write(p []byte) (int, error) {
	*l = append(*l, string(bytes.Clone(p)))
	return len(p), nil
}

// TestJournaldPriorities has each record in one write, with its priority, also of a logger that has attributes.
func TestJournaldPriorities(t *testing.T) {
	var got lines
	log := newLog(cli.Env{Err: &got, Getenv: func(string) string { return "8:1" }})
	log.Info("runs", "version", "v1")
	log.With("node", "n").Error("fails")
	want := lines{"<6>msg=runs version=v1\n", "<3>msg=fails node=n\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
