package facts

import (
	"math"
	"testing"

	"github.com/kdiag/kdiag/checks/host"
)

func TestAmount(t *testing.T) {
	for _, tt := range []struct {
		written string
		want    uint64
	}{
		{"10%", 100},
		{"0%", 0},
		{"100Mi", 100 << 20},
		{"1.5Gi", 3 << 29},
		{"500M", 500_000_000},
		{"12k", 12_000},
		{"2048", 2048},
		{" 5% ", 0},
		{"", 0},
		{"x", 0},
		{"-5%", 0},
		{"NaN", 0},
		{"Inf", 0},
		{"1e300", 0},
		{"%", 0},
		{"5Zi", 0},
	} {
		if got := Amount(tt.written, 1000); got != tt.want {
			t.Errorf("%q: %d, want %d", tt.written, got, tt.want)
		}
	}
}

func FuzzAmount(f *testing.F) {
	f.Add("10%", uint64(1000))
	f.Add("1.5Gi", uint64(math.MaxUint64))
	f.Fuzz(func(_ *testing.T, written string, total uint64) { _ = Amount(written, total) })
}

// TestWaits tells what a task waits for.
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

// TestTaskNames holds the ways in which kernel and kdiag write a task, and what it is to the node.
func TestTaskNames(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want LogTask
		role Role
	}{
		{"containerd-shim:5000", LogTask{Name: "containerd-shim", PID: 5000}, RoleShim},
		{"containerd-shim (pid 5000)", LogTask{Name: "containerd-shim", PID: 5000}, RoleShim},
		{"containerd[77]", LogTask{Name: "containerd", PID: 77}, RoleRuntime},
		{"runc:[2:INIT]:6000", LogTask{Name: "runc:[2:INIT]", PID: 6000}, RoleOCI},
		{"runc:[2:INIT]", LogTask{Name: "runc:[2:INIT]", PID: 0}, RoleOCI},
		{"kworker/u8:3:12345", LogTask{Name: "kworker/u8:3", PID: 12345}, RoleOther},
		{"jbd2/sda1-8:311", LogTask{Name: "jbd2/sda1-8", PID: 311}, RoleOther},
		{"kubelet", LogTask{Name: "kubelet", PID: 0}, RoleKubelet},
		{"k3s-server", LogTask{Name: "k3s-server", PID: 0}, RoleKubelet},
		{"4711", LogTask{Name: "", PID: 4711}, RoleOther},
		{"", LogTask{}, RoleOther},
		{"java", LogTask{Name: "java", PID: 0}, RoleOther},
		{"conmon:9", LogTask{Name: "conmon", PID: 9}, RoleShim},
		{"crio:9", LogTask{Name: "crio", PID: 9}, RoleRuntime},
	} {
		if got := TaskIn(tt.in); got != tt.want || got.Role() != tt.role {
			t.Errorf("%q: %+v, role %d", tt.in, got, got.Role())
		}
	}
	for name, want := range map[string]Role{
		"kubelet.service": RoleKubelet, "k3s-agent.service": RoleKubelet, "snap.microk8s.daemon-kubelite.service": RoleKubelet, "rke2-server": RoleKubelet,
		"kubelet: The Kubernetes Node Agent": RoleKubelet, "Kubernetes Kubelet": RoleKubelet, "Lightweight Kubernetes": RoleKubelet,
		"containerd.service": RoleRuntime, "containerd container runtime": RoleRuntime, "docker.service": RoleRuntime, "crio": RoleRuntime,
		"cri-containerd-12.scope": RoleOther, "sshd.service": RoleOther, "docker.socket": RoleOther, "": RoleOther,
	} {
		if got := UnitRole(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}
