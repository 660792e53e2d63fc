package host

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pidsIn adds a cgroup with the files of the pids controller.
func (n *node) pidsIn(dir string, current int, limit string, refused int) {
	n.write(dir+"/pids.current", fmt.Sprintf("%d\n", current))
	n.write(dir+"/pids.max", limit+"\n")
	n.write(dir+"/pids.events", fmt.Sprintf("max %d\n", refused))
}

// kernelLimits adds what the kernel says of tasks, recorded from a node.
func (n *node) kernelLimits() {
	n.write("proc/loadavg", "11.84 10.70 5.62 8/135 28837\n")
	n.write("proc/sys/kernel/pid_max", "4194304\n")
	n.write("proc/sys/kernel/threads-max", "192730\n")
}

func TestReadPIDs(t *testing.T) {
	t.Run("version 2", func(t *testing.T) {
		n := newNode(t)
		n.kernelLimits()
		n.write("proc/1/mountinfo", mountinfoV2)
		n.process(20, 1, "containerd", 'S', "containerd")
		n.write("proc/20/cgroup", "0::/system.slice/containerd.service\n")
		n.process(30, 1, "kubelet", 'S', "kubelet")
		n.write("proc/30/cgroup", "0::/system.slice/kubelet.service\n")
		cg := "sys/fs/cgroup/"
		n.pidsIn(cg+"system.slice", 900, "1000", 2)
		n.pidsIn(cg+"system.slice/containerd.service", 400, "max", 0)
		n.pidsIn(cg+"system.slice/kubelet.service", 40, "57818", 0)
		n.pidsIn(cg+"system.slice/other.service", 99, "100", 7) // not ours
		pods := cg + "kubepods.slice"
		n.pidsIn(pods, 500, "32768", 0)
		n.pidsIn(pods+"/kubepods-pod1_a.slice", 90, "100", 0)
		n.pidsIn(pods+"/kubepods-pod1_a.slice/cri-containerd-"+idA+".scope", 10, "max", 0)
		n.pidsIn(pods+"/kubepods-pod2.slice", 100, "100", 12)
		n.pidsIn(pods+"/kubepods-pod3.slice", 79, "100", 0)
		n.pidsIn(pods+"/kubepods-pod4.slice", 1, "max", 3) // a limit below it refused
		got, err := ReadPIDs(t.Context(), n.root, n.people())
		if err != nil {
			t.Fatal(err)
		}
		want := PIDs{
			Tasks: 135, PIDMax: 4194304, ThreadsMax: 192730,
			Cgroups: []CgroupUsage{
				{Path: "/system.slice/containerd.service", Usage: Usage{400, 0}, Owner: Owner{Role: RoleRuntime, Unit: "containerd.service"}},
				{Path: "/system.slice/kubelet.service", Usage: Usage{40, 57818}, Owner: Owner{Role: RoleKubelet, Unit: "kubelet.service"}},
				{Path: "/system.slice", Usage: Usage{900, 1000}, Events: 2},
				{Path: "/kubepods.slice", Usage: Usage{500, 32768}},
				{Path: "/kubepods.slice/kubepods-pod2.slice", Usage: Usage{100, 100}, Events: 12, Owner: Owner{PodUID: "2"}},
				{Path: "/kubepods.slice/kubepods-pod1_a.slice", Usage: Usage{90, 100}, Owner: Owner{PodUID: "1-a"}},
				{Path: "/kubepods.slice/kubepods-pod4.slice", Usage: Usage{1, 0}, Events: 3, Owner: Owner{PodUID: "4"}},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ReadPIDs (-want +got):\n%s", diff)
		}
	})
	t.Run("hybrid", func(t *testing.T) {
		n := newNode(t)
		n.kernelLimits()
		n.write("proc/1/mountinfo", string(fixture(t, "mountinfo-hybrid")))
		n.process(30, 1, "kubelet", 'S', "kubelet")
		n.write("proc/30/cgroup", "8:pids:/kubelet\n0::/elsewhere\n")
		n.pidsIn("sys/fs/cgroup/pids/kubelet", 8, "10", 1)
		got, err := ReadPIDs(t.Context(), n.root, n.people())
		if err != nil {
			t.Fatal(err)
		}
		want := []CgroupUsage{{Path: "/kubelet", Usage: Usage{8, 10}, Events: 1, Owner: Owner{Role: RoleKubelet}}}
		if diff := cmp.Diff(want, got.Cgroups); diff != "" {
			t.Errorf("cgroups (-want +got):\n%s", diff)
		}
	})
	t.Run("no cgroups", func(t *testing.T) {
		n := newNode(t)
		n.kernelLimits()
		n.write("proc/1/mountinfo", "22 27 0:21 / /proc rw,relatime - proc proc rw\n")
		got, err := ReadPIDs(t.Context(), n.root, n.people())
		if err == nil || got.Tasks != 135 {
			t.Errorf("ReadPIDs = %+v, %v; want what the kernel says, and an error", got, err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if _, err := ReadPIDs(t.Context(), t.TempDir(), Population{}); err == nil {
			t.Error("ReadPIDs of nothing: no error")
		}
	})
}

func FuzzParseLoadTasks(f *testing.F) {
	f.Add([]byte("11.84 10.70 5.62 8/135 28837\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parseLoadTasks(b); n < 0 || err != nil && n != 0 {
			t.Errorf("parseLoadTasks(%q) = %d, %v", b, n, err)
		}
	})
}
