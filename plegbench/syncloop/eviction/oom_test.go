package eviction

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

const (
	before      = "6,2,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
	inContainer = before + "oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=stress,pid=42,uid=0"
	inSystem    = before + "global_oom,task_memcg=/user.slice,task=my, app,pid=77,uid=1000"
	atRoot      = before + "oom_memcg=/,task_memcg=/a,task=b,pid=5,uid=0"
)

func TestParseKill(t *testing.T) {
	for record, want := range map[string]kill{
		inContainer: {"/kubepods/pod1", "stress", 42},
		inSystem:    {"", "my, app", 77},
		atRoot:      {"/", "b", 5},
		"4,1,1,-;stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0": {},
		"": {},
		strings.Replace(inSystem, "pid=77", "pid=99999999999999999999", 1): {},
	} {
		got, ok := parseKill(record)
		if !ok {
			got = kill{}
		}
		if got != want || ok != (want.PID != 0) || ok && got.global() != (want.Memcg != "/kubepods/pod1") {
			t.Errorf("%q: %+v, %v", record, got, ok)
		}
	}
}

func TestWatchOOM(t *testing.T) {
	n := newHarness(500, 500)
	if err := n.WatchOOM(t.Context(), filepath.Join(t.TempDir(), "kmsg")); err == nil ||
		!strings.Contains(err.Error(), "the kernel's log") {
		t.Errorf("without a log: %v", err)
	}
	n.reportKill(kill{"/kubepods/pod1", "stress", 42}) // only kills of the system are reported
	n.reportKill(kill{"", "my, app", 77})
	want := []string{"Warning SystemOOM System OOM encountered, victim process: my, app, pid: 77"}
	looptest.Equal(t, "events", want, looptest.Drain(n.recorder.Events))
}
