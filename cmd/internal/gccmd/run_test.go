package gccmd

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
)

// TestLockTwoNames wants one lock for a runtime whose socket's folder is there under two names, as by a bind mount: the
// file's name does not depend on the folder's.
func TestLockTwoNames(t *testing.T) {
	names := map[string]bool{}
	for range 2 {
		dir := t.TempDir()
		s := session{
			env: cli.Env{Root: t.TempDir(), Err: io.Discard},
			t:   &target.Target{Endpoint: crictl.Endpoint{URL: "unix://" + dir + "/c.sock"}},
		}
		if err := s.acquire(); err != nil {
			t.Fatal(err)
		}
		defer s.close()
		found, err := filepath.Glob(filepath.Join(dir, "*.lock"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		names[filepath.Base(found[0])] = true
		second := session{env: s.env, t: s.t}
		if err := second.acquire(); !errors.Is(err, gc.ErrLocked) {
			t.Errorf("a second run was let in: %v", err)
		}
	}
	if len(names) != 1 {
		t.Errorf("two names of one folder give two locks: %v", names)
	}
}

// TestDiskHangs gives up a disk that does not answer, and waits a little for one when the time is up.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		hung := make(chan struct{})
		defer close(hung)
		_, err := disk(ctx, "--audit", func() (int, error) { <-hung; return 1, nil })
		if hint, ok := errors.AsType[*cli.HintError](err); !ok || hint.Error() != "the disk of --audit does not answer" ||
			hint.Code != cli.ExitUnknown {
			t.Errorf("%v", err)
		}
		<-ctx.Done()
		if got, err := disk(ctx, "--audit", func() (int, error) { return 7, os.ErrClosed }); got != 7 ||
			!errors.Is(err, os.ErrClosed) {
			t.Errorf("%d, %v", got, err)
		}
	})
}
