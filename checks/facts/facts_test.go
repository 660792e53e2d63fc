package facts

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/internal/testkit"
)

func TestAmount(t *testing.T) {
	for written, want := range map[string]uint64{
		"10%":   100,
		"100Mi": 100 << 20,
		"1.5Gi": 3 << 29,
		"2048":  2048,
		"NaN":   0,
		"1e300": 0,
	} {
		testkit.Equal(t, written, want, Amount(written, 1000))
	}
}

func FuzzAmount(f *testing.F) {
	f.Add("10%", uint64(1000))
	f.Add("1.5Gi", uint64(math.MaxUint64))
	f.Fuzz(func(_ *testing.T, written string, total uint64) { _ = Amount(written, total) })
}

// TestWaits checks what a task waits for by its kernel functions.
func TestWaits(t *testing.T) {
	for _, tt := range []struct {
		wchan string
		stack []string
		want  Wait
	}{
		{"", nil, WaitUnknown},
		{"rwsem_down_write_slowpath", nil, WaitUnknown},
		{"rpc_wait_bit_killable", nil, WaitNetworkFS},
		{"folio_wait_bit_common", []string{"folio_wait_bit_common", "nfs_wb_folio"}, WaitNetworkFS},
		{"request_wait_answer", []string{"request_wait_answer", "fuse_simple_request"}, WaitFUSE},
		{"wait_for_vfork_done", nil, WaitChild},
		{
			"schedule_preempt_disabled",
			[]string{"copy_net_ns", "create_new_namespaces", "copy_process", "kernel_clone"},
			WaitNetns,
		},
		{"rwsem_down_write", []string{"rwsem_down_write", "copy_process", "kernel_clone"}, WaitUnknown},
		{"rwsem_down_read_slowpath", []string{"rwsem_down_read_slowpath", "cgroup_attach_task"}, WaitCgroup},
		{"__mutex_lock", []string{"__mutex_lock", "copy_net_ns"}, WaitNetns},
		{"jbd2_log_wait_commit", nil, WaitDisk},
		{"io_schedule", []string{"io_schedule", "mem_cgroup_oom_synchronize"}, WaitMemory},
		{"fanotify_handle_event", nil, WaitWatcher},
		{"__refrigerator", []string{"__refrigerator", "nfs_wait"}, WaitFrozen},
		{"wb_wait_for_completion", []string{"wb_wait_for_completion", "deactivate_locked_super"}, WaitDisk},
		{"generic_shutdown_super", nil, WaitUnmount},
	} {
		if got := WaitOf(host.BlockedTask{Wchan: tt.wchan, Stack: tt.stack}); got != tt.want ||
			got.String() == "" {
			t.Errorf("%s %v: %q, want %q", tt.wchan, tt.stack, got, tt.want)
		}
	}
}

// TestStuckShims has shims that are stopped, asleep for good, or at work for too long, themselves or by a child.
func TestStuckShims(t *testing.T) {
	now := time.Unix(10_000, 0)
	old, young := now.Add(-StuckWork), now.Add(-StuckWork+time.Second)
	got := StuckShims(New(&Input{Now: now, Processes: []host.Process{
		{PID: 10, Role: host.RoleShim, ObjectID: "10", State: 'S', Started: old},
		{PID: 11, Role: host.RoleShim, ObjectID: "11", State: 'T'},
		{PID: 13, Role: host.RoleShim, ObjectID: "13", State: 'D'},
		{PID: 14, Role: host.RoleShim, ObjectID: "14", State: 'D', Lasting: true},
		{PID: 15, Role: host.RoleShim, ObjectID: "15", State: 'S', Work: "delete", Started: old},
		{PID: 16, Role: host.RoleShim, ObjectID: "16", State: 'S', Work: "start", Started: young},
		{PID: 17, Role: host.RoleShim, ObjectID: "17", State: 'S'},
		{PID: 18, PPID: 17, Role: host.RoleOCI, State: 'S', Work: "update", Started: old},
	}}))
	if !slices.EqualFunc(got, []int{11, 14, 15, 17}, func(p host.Process, pid int) bool { return p.PID == pid }) {
		t.Errorf("%+v", got)
	}
}

// TestInputIsPlain walks all that an Input may hold: a bundle has it as JSON, so what JSON leaves out must be nothing
// that is judged.
func TestInputIsPlain(t *testing.T) {
	lost := map[string]string{
		"checks.Runtime.Simulate": "names the command for next steps",
		"checks.Runtime.From":     "names the command for next steps",
		"journal.Episode.Context": "is judged when the log is read",
		"journal.Report.Zone":     "is of how times are shown",
		"journal.Report.Dumped":   "is read into Input.LogStacks",
		"checks.CanaryStep.Hung":  "is in the words of its error",
		"host.Population":         "is what other readings are made of",
	}
	seen := map[reflect.Type]bool{reflect.TypeFor[time.Time](): true}
	var walk func(ty reflect.Type)
	walk = func(ty reflect.Type) {
		switch ty.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			walk(ty.Elem())
		case reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("%s is not kept", ty)
		case reflect.Struct:
			if seen[ty] || lost[ty.String()] != "" {
				return
			}
			seen[ty] = true
			for f := range ty.Fields() {
				name := ty.String() + "." + f.Name
				if lost[name] != "" {
					continue
				}
				if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
					t.Errorf("%s is not kept", name)
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Input]())
	if len(seen) < 50 {
		t.Errorf("%d types", len(seen))
	}
}

// TestCannotExecute takes nothing for the OCI runtime's last words but the only line of a log.
func TestCannotExecute(t *testing.T) {
	const stamp = "2026-11-28T23:22:07.607338781Z "
	for log, want := range map[string]string{
		stamp + "stderr F exec /bin/sh: exec format error\n": "exec /bin/sh: exec format error",
		stamp + "stderr F standard_init_linux.go:228: exec user process caused: exec format error\n": "standard_init_linux.go:" +
			"228: exec user process caused: exec format error",
		stamp + "stderr F exec container process `/bin/sh`: Exec format error\n":        "exec container process `/bin/sh`: Exec format error",
		stamp + "stdout F starting\n" + stamp + "stderr F exec /x: exec format error\n": "",
		stamp + "stderr F /start.sh: exec /x: exec format error: retried\n":             "",
		"": "",
	} {
		testkit.Equal(t, log, want, CannotExecute(log))
	}
}
