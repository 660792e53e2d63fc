package reproduce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/crictl/fake/faketest"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

// TestInterrupt ends a run while the runtime hangs and the node does not show it yet. What the kubelet sees of its
// own end is none of the incident's.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := Find("runtime-hung")
		var sockets faketest.Sockets
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		report, err := Run(ctx, Config{
			Scenario: s, Pods: 2, Speed: 1, Dir: t.TempDir(), Listen: sockets.Listen, Dialer: sockets.Dial,
			Notify: func(e Event) {
				// After 30 s; the runtime counts as down soon, and a pass over the node's status hangs for 2 m.
				if e.What == RelistStuck {
					time.AfterFunc(30*time.Second, interrupt)
				}
			},
		})
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
		testkit.Equal(t, "after the fault", []What{CleanedUp}, after)
	})
}

// TestCleanup removes the folder of a run that was killed and leaves that of one that lives.
func TestCleanup(t *testing.T) {
	parent := t.TempDir()
	alive, err := newFolder(parent, "")
	killed, killedErr := newFolder(parent, "")
	testkit.Must(t, errors.Join(err, killedErr))
	other := filepath.Join(parent, "other")
	testkit.Must(t, errors.Join(killed.lock.Close(), os.Mkdir(other, 0o700)))
	done, err := Cleanup(t.Context(), parent)
	testkit.Must(t, err)
	testkit.Equal(t, "removed", syncloop.Cleaned{Folders: []string{killed.dir}}, done)
	left, err := filepath.Glob(parent + "/*")
	testkit.Must(t, err)
	testkit.Equal(t, "left", []string{alive.dir, other}, left)
	testkit.Must(t, alive.close())
}

func TestJudge(t *testing.T) {
	const down = "container runtime is down"
	for _, c := range []struct {
		want, message string
		notReady, ok  bool
	}{
		{"", "", false, true},
		{"", "x", true, false},
		{"is down", "", false, false},
		{"is down", down, true, true},
		{"is down", "PLEG is not healthy", true, false},
	} {
		testkit.Equal(t, fmt.Sprintf("%+v", c), c.ok, judge(c.want, c.message, c.notReady) == "")
	}
}
