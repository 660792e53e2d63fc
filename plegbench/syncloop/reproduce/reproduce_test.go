package reproduce

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// TestInterrupt ends a run while the runtime hangs and the node does not show it yet. What the kubelet sees of its
// own end is none of the incident's.
func TestInterrupt(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "kdiag-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, _ := Find("runtime-hung")
	s.Hold = fake.Duration(2 * time.Hour) // the interrupt ends it, however late that comes
	const speed = 60
	ctx, interrupt := context.WithCancel(t.Context())
	report, err := Run(ctx, Config{Scenario: s, Pods: 2, Speed: speed, Dir: dir, Notify: func(e Event) {
		// After 30 s; the runtime counts as down soon, and a pass over the node's status hangs for 2 m. On a busy
		// machine a relist may be stuck before the fault as well.
		if e.What == RelistStuck && e.Fault {
			time.AfterFunc(30*time.Second/speed, interrupt)
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Events, func(e Event) bool { return e.What == Lifted })
	if i < 0 {
		t.Fatalf("the fault is not lifted: %+v", report.Events)
	}
	var after []What
	for _, e := range report.Events[i+1:] {
		after = append(after, e.What)
	}
	if diff := cmp.Diff([]What{CleanedUp}, after); diff != "" || !report.CleanedUp {
		t.Errorf("after the fault: %s%+v", diff, report.Events)
	}
}

// TestCleanup removes the folder of a run that was killed and leaves that of one that lives.
func TestCleanup(t *testing.T) {
	parent, err := os.MkdirTemp("/tmp", "kdiag-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	alive, err := newFolder(parent, "")
	killed, killedErr := newFolder(parent, "")
	if err := errors.Join(err, killedErr); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(parent, "other")
	if err := errors.Join(killed.lock.Close(), os.Mkdir(other, 0o700)); err != nil {
		t.Fatal(err)
	}
	done, err := Cleanup(t.Context(), parent)
	if diff := cmp.Diff(syncloop.Cleaned{Folders: []string{killed.dir}}, done); diff != "" || err != nil {
		t.Error(err, diff)
	}
	left, err := filepath.Glob(parent + "/*")
	if diff := cmp.Diff([]string{alive.dir, other}, left); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if err := alive.close(); err != nil {
		t.Error(err)
	}
}
