package facts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/host"
)

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
