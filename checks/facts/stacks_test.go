package facts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/stacks"
)

// TestTieStacks has a goroutine for which nobody waits, and which waits for a process itself: it is a holder where that
// process is in the way, not where it is at work as in a daemon that is busy.
func TestTieStacks(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 12, 9, 0, time.UTC)
	shim := host.Process{PID: 5000, Role: host.RoleShim, State: 'T', Daemon: 4711}
	runc := func(age time.Duration, work string) host.Process {
		return host.Process{
			PID: 5001, Role: host.RoleOCI, State: 'S', Daemon: 4711, Work: work, Started: now.Add(-age),
		}
	}
	forShim := checks.StackWait{On: "the shim's reply to Update", WaitsFor: stacks.WaitsTTRPC}
	forRunc := checks.StackWait{On: "runc create", WaitsFor: stacks.WaitsRunc}
	tests := []struct {
		name    string
		process host.Process
		wait    checks.StackWait
		known   bool
		holds   bool
	}{
		{"a stopped shim", shim, forShim, false, true},
		{"runc at work for long", runc(time.Minute, "create"), forRunc, false, true},
		{"runc at work", runc(5*time.Second, "create"), forRunc, false, false},
		{"runc at work in a known way to hang", runc(5*time.Second, "create"), forRunc, true, true},
		{"runc at something else", runc(time.Minute, "delete"), forRunc, false, false},
		{"a lock", shim, checks.StackWait{On: "lock 0xc000123", WaitsFor: stacks.WaitsLock}, false, false},
	}
	for _, tc := range tests {
		tc.wait.Count, tc.wait.Goroutines = 1, []int{84}
		r := &checks.StacksReport{
			Sources: []checks.StackSource{{PID: 4711, Role: "runtime", Goroutines: 9}},
			Waits:   []checks.StackWait{tc.wait},
		}
		if tc.known {
			r.Known = []checks.KnownPicture{{Pattern: "shim-runc", Goroutines: []int{84}}}
		}
		in := &Input{Now: now, Stacks: r, Processes: []host.Process{tc.process}}
		TieStacks(in)
		if holds := len(r.Holders) == 1 && r.Holders[0].Process.PID == tc.process.PID; holds != tc.holds {
			t.Errorf("%s: %+v", tc.name, r.Holders)
		}
		TieStacks(in)
		if len(r.Holders) > 1 {
			t.Errorf("%s: tied twice: %+v", tc.name, r.Holders)
		}
	}
}

func TestStuckShims(t *testing.T) {
	now := time.Unix(10_000, 0)
	old, young := now.Add(-StuckWork), now.Add(-StuckWork+time.Second)
	f := New(&Input{Now: now, Processes: []host.Process{
		{PID: 1, Role: host.RoleRuntime, State: 'T'},
		{PID: 10, Role: host.RoleShim, ObjectID: "10", State: 'S', Started: old},
		{PID: 11, Role: host.RoleShim, ObjectID: "11", State: 'T'},
		{PID: 12, Role: host.RoleShim, ObjectID: "12", State: 't'},
		{PID: 13, Role: host.RoleShim, ObjectID: "13", State: 'D'},
		{PID: 14, Role: host.RoleShim, ObjectID: "14", State: 'D', Lasting: true},
		{PID: 15, Role: host.RoleShim, ObjectID: "15", State: 'S', Work: "delete", Started: old},
		{PID: 16, Role: host.RoleShim, ObjectID: "16", State: 'S', Work: "start", Started: young},
		{PID: 17, Role: host.RoleShim, ObjectID: "17", State: 'S'},
		{PID: 18, PPID: 17, Role: host.RoleOCI, State: 'S', Work: "update", Started: old},
		{PID: 19, Role: host.RoleShim, ObjectID: "19", State: 'S'},
		{PID: 20, PPID: 19, Role: host.RoleOCI, State: 'Z', Work: "kill", Started: old},
	}})
	var pids []int
	for _, p := range StuckShims(f) {
		pids = append(pids, p.PID)
	}
	if diff := cmp.Diff([]int{11, 12, 14, 15, 17}, pids); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestDaemonBehind has what conmon and docker's shims start belong to their daemons.
func TestDaemonBehind(t *testing.T) {
	f := &Facts{Input: Input{Processes: []host.Process{
		{PID: 52, Name: "crio", Role: host.RoleRuntime},
		{PID: 57, Name: "containerd", Role: host.RoleRuntime, Sockets: []string{"/run/docker/containerd/c.sock"}},
		{PID: 60, Name: "runc", Role: host.RoleOCI, Program: "conmon", Namespace: kubernetes},
		{PID: 61, Name: "runc", Role: host.RoleOCI, Program: "conmon"}, // of podman's
		{PID: 62, Name: "runc", Role: host.RoleOCI, Address: "/var/run/docker/containerd/c.sock", Namespace: "moby"},
	}}}
	got := map[int]int{}
	for _, p := range f.Processes {
		got[p.PID] = daemonBehind(f, p)
	}
	if diff := cmp.Diff(map[int]int{52: 52, 57: 57, 60: 52, 61: 0, 62: 57}, got); diff != "" {
		t.Error(diff)
	}
}
