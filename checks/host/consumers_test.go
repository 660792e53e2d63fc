package host

import (
	"fmt"
	"testing"
)

// memoryIn adds a control group with the files of the memory controller of version 2, in MiB.
func (n *node) memoryIn(dir string, usage, inactive, shmem int, limit string) {
	dir = cgroupRoot + dir
	n.write(dir+"/memory.current", fmt.Sprintln(usage<<20), dir+"/memory.max", limit+"\n",
		dir+"/memory.stat", fmt.Sprintf("anon 1\ninactive_file %d\nshmem %d\n", inactive<<20, shmem<<20))
}

// pidsIn adds a cgroup with the files of the pids controller.
func (n *node) pidsIn(dir string, current int, limit string, refused int) {
	dir = cgroupRoot + dir
	n.write(dir+"/pids.current", fmt.Sprintln(current), dir+"/pids.max", limit+"\n",
		dir+"/pids.events", fmt.Sprintf("max %d\n", refused))
}

// TestMemoryConsumers has pods and units that use memory, and of which some wait for it.
func TestMemoryConsumers(t *testing.T) {
	const (
		burstable = "/kubepods.slice/kubepods-burstable.slice"
		pod       = burstable + "/kubepods-burstable-pod0f4f_7b1a.slice"
	)
	consumer := func(path string, mib uint64, o Owner) Consumer {
		return Consumer{Path: path, Dir: "/" + cgroupRoot + path, Usage: Usage{Current: mib << 20}, Owner: o}
	}
	first := consumer(pod, 800, Owner{PodUID: "0f4f-7b1a"})
	first.Max, first.Shmem = 1<<30, 700<<20
	n := newNodeV2(t)
	n.write(cgroupRoot+"/system.slice/gone.service/memory.current", "999999999999\n")
	n.memoryIn("/kubepods.slice", 9000, 0, 0, "max")
	n.memoryIn(burstable, 8000, 0, 0, "max")
	n.memoryIn(pod, 900, 100, 700, "1073741824")
	n.memoryIn(pod+"/cri-containerd-"+idA+".scope", 890, 0, 0, "max")
	n.memoryIn(burstable+"/kubepods-burstable-pod1.slice", 3000, 2900, 0, "max") // nearly all can be dropped
	n.memoryIn("/kubepods.slice/kubepods-pod2.slice", 300, 0, 0, "max")
	n.memoryIn("/kubepods.slice/kubepods-pod3.slice", 200, 0, 0, "max")
	n.memoryIn("/system.slice", 2000, 0, 0, "max")
	n.memoryIn("/system.slice/containerd.service", 400, 150, 0, "max")
	n.memoryIn("/user.slice/user-0.slice/user@0.service", 120, 0, 0, "max")
	n.memoryIn("/user.slice/user-0.slice/user@0.service/app.slice", 119, 0, 0, "max")
	n.memoryIn("/init.scope", 0, 0, 0, "max")
	for dir, avg10 := range map[string]string{
		"/kubepods.slice": "50.00", pod: "96.50", "/kubepods.slice/kubepods-pod2.slice": "0.00",
		"/system.slice/containerd.service": "2.00",
	} {
		n.write(cgroupRoot+dir+"/memory.pressure", "some avg10=99.00 avg60=9.00 avg300=1.00 total=5\n"+
			"full avg10="+avg10+" avg60=8.00 avg300=1.00 total=2\n")
	}
	got, err := ReadConsumers(t.Context(), NewCgroupFS(n.root), n.processes(), waitsForMemory, PIDs{})
	failed(t, "ReadConsumers", err, "")
	equal(t, "ReadConsumers", Consumers{Memory: []Consumer{
		first,
		consumer("/kubepods.slice/kubepods-pod2.slice", 300, Owner{PodUID: "2"}),
		consumer("/system.slice/containerd.service", 250, Owner{Unit: "containerd.service"}),
		consumer("/kubepods.slice/kubepods-pod3.slice", 200, Owner{PodUID: "3"}),
		consumer("/user.slice/user-0.slice/user@0.service", 120, Owner{Unit: "user@0.service"}),
	}, Stalled: []StalledGroup{
		{Path: first.Path, Dir: first.Dir, Full: Averages{96.5, 8, 1}, Owner: first.Owner},
		{
			Path: "/system.slice/containerd.service", Dir: "/" + cgroupRoot + "/system.slice/containerd.service",
			Full: Averages{2, 8, 1}, Owner: Owner{Unit: "containerd.service"},
		},
	}}, got)
}

// TestPIDConsumers has the largest consumers of the limit that is nearest: limits of the node and its services come
// before those of pods, and the fullest of each first.
func TestPIDConsumers(t *testing.T) {
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_a.slice"
	container := pod + "/cri-containerd-" + idA + ".scope"
	build := func(mounts, point string) *node {
		n := newNode(t)
		n.pidsIn(point+"/kubepods.slice", 500, "max", 0)
		n.pidsIn(point+pod, 400, "max", 0)
		n.pidsIn(point+container, 399, "512", 0)
		n.pidsIn(point+"/kubepods.slice/kubepods-pod2.slice", 100, "1024", 0)
		n.pidsIn(point+"/system.slice/kubelet.service", 30, "max", 0)
		n.process(40, 1, "node", 'S', "node")
		n.process(41, 40, "sh", 'Z', "")
		n.process(42, 40, "sh", 'Z', "")
		n.stat(stat{pid: 50, ppid: 1, comm: "java", state: 'S', threads: 90})
		n.write("proc/1/mountinfo", mounts, "proc/40/cgroup", "8:pids:"+container+"\n0::"+container+"\n",
			cgroupRoot+point+container+"/cgroup.procs", "40\n41\n42\n77777\n",
			cgroupRoot+point+"/kubepods.slice/kubepods-pod2.slice/cgroup.procs", "50\n",
			// A group that has memory is known, and gone in the second read.
			cgroupRoot+"/system.slice/kubelet.service/memory.current", "1\n",
			cgroupRoot+"/memory/x.service/memory.usage_in_bytes", "1\n")
		return n
	}
	inPod := Owner{ObjectID: idA, PodUID: "1-a"}
	group := func(path string, current uint64, pod string) CgroupUsage {
		return CgroupUsage{Path: path, Usage: Usage{current, 100}, Owner: Owner{PodUID: pod}}
	}
	processGroups := []ProcessGroup{
		{Name: "java", Processes: 1, Threads: 90, PID: 50},
		{Name: "sh", Processes: 2, Threads: 2, PID: 40, Parent: "node", Owner: inPod},
		{Name: "node", Processes: 1, Threads: 1, PID: 40, Owner: inPod},
	}
	for _, tree := range []struct{ name, mounts, point string }{
		{"version 1", fixture(t, "mountinfo-hybrid"), "/pids"}, {"version 2", mountinfoV2, ""},
	} {
		consumer := func(path string, current, limit uint64, o Owner) Consumer {
			dir := "/" + cgroupRoot + tree.point + path
			return Consumer{Path: path, Dir: dir, Usage: Usage{current, limit}, Owner: o}
		}
		pods := []Consumer{
			consumer(pod, 400, 0, Owner{PodUID: "1-a"}),
			consumer("/kubepods.slice/kubepods-pod2.slice", 100, 1024, Owner{PodUID: "2"}),
		}
		all := append(pods, consumer("/system.slice/kubelet.service", 30, 0, Owner{Unit: "kubelet.service"}))
		ofNode := Consumers{PIDs: all, ProcessGroups: processGroups}
		inOne := Consumers{PIDs: []Consumer{consumer(container, 399, 512, inPod)}, ProcessGroups: processGroups[1:]}
		for _, tt := range []struct {
			name  string
			tasks int // of 100
			near  []CgroupUsage
			want  Consumers
		}{
			{"nothing is near", 1, []CgroupUsage{group("/far", 79, "")}, ofNode},
			{"the node and a pod", 85, []CgroupUsage{group(pod, 99, "1")}, ofNode},
			{"the node is nearer", 95, []CgroupUsage{group("/kubepods.slice", 90, "")}, ofNode},
			{"all pods before one", 1, []CgroupUsage{group(pod, 99, "1"), group("/kubepods.slice", 80, "")}, Consumers{
				PIDs: pods, ProcessGroups: processGroups,
			}},
			{"the fullest pod", 1, []CgroupUsage{group("/kubepods/pod2", 80, "2"), group(pod, 90, "1")}, inOne},
			{"a container", 1, []CgroupUsage{group(container, 90, "")}, Consumers{ProcessGroups: processGroups[1:]}},
		} {
			n := build(tree.mounts, tree.point)
			near := PIDs{Tasks: tt.tasks, PIDMax: 100, Cgroups: tt.near}
			got, err := ReadConsumers(t.Context(), NewCgroupFS(n.root), n.processes(), Pressure{}, near)
			failed(t, tt.name, err, "")
			equal(t, tree.name+", "+tt.name, tt.want, got)
		}
	}
}

var waitsForMemory = Pressure{Memory: &Stall{Full: Averages{Avg10: 1}}}

// TestConsumersUnknown checks for an error where something is not known, with no other named instead.
func TestConsumersUnknown(t *testing.T) {
	v1 := func(controller string) string {
		return "32 31 0:29 / /sys/fs/cgroup/x rw - cgroup cgroup rw," + controller + "\n"
	}
	for _, tt := range []struct{ name, mounts, below, err string }{
		{"no memory controller", v1("pids"), "", "has the memory controller"},
		{"version 1 does not show who waits", v1("memory"), "", "version 1 do not show"},
		{"a group that is gone", mountinfoV2, "/kubepods/podgone", "there is no control group"},
		{"a group that leads away", mountinfoV2, "/../../../proc", "there is no control group"},
	} {
		n := newNode(t)
		n.write("proc/1/mountinfo", tt.mounts, cgroupRoot+"/system.slice/a.service/cgroup.procs", "")
		n.process(40, 1, "node", 'S', "node")
		pids := PIDs{}
		if tt.below != "" {
			pids.Cgroups = []CgroupUsage{{Path: tt.below, Usage: Usage{9, 10}}}
		}
		got, err := ReadConsumers(t.Context(), NewCgroupFS(n.root), n.processes(), waitsForMemory, pids)
		failed(t, tt.name, err, tt.err)
		if tt.below != "" && len(got.ProcessGroups) > 0 {
			t.Errorf("not in the group: %+v", got.ProcessGroups)
		}
	}
	_, err := ReadConsumers(t.Context(), NewCgroupFS(t.TempDir()), Population{}, Pressure{}, PIDs{})
	failed(t, "no processes", err, "could not be listed")
}

func TestProcessGroups(t *testing.T) {
	var bomb []stat // each the child of the one before
	for i := range 9 {
		bomb = append(bomb, stat{pid: 100 + i, ppid: 99 + i, comm: "bash"})
	}
	kernel := func(pid int, name string) stat { return stat{pid: pid, ppid: 2, comm: name, kernel: true} }
	children := func(parents ...int) (list []stat) {
		for i, ppid := range parents {
			list = append(list, stat{pid: 5 + i, ppid: ppid, comm: "x"})
		}
		return list
	}
	for _, tt := range []struct {
		name string
		all  []stat
		want ProcessGroup
	}{
		{"a fork bomb", bomb, ProcessGroup{Name: "bash", Processes: 9, Threads: 9}},
		{"more than half do", children(4, 4, 3), ProcessGroup{Name: "x", Processes: 3, Threads: 3, PID: 4}},
		{"orphans", children(1, 1, 3), ProcessGroup{Name: "x", Processes: 3, Threads: 3}},
		{
			"threads of the kernel",
			[]stat{kernel(2, "kthreadd"), kernel(7, "kworker/0:1"), kernel(8, "nfsd")},
			ProcessGroup{Name: "kernel threads", Processes: 3, Threads: 3, PID: 2, Parent: "kthreadd"},
		},
	} {
		p := Population{all: map[int]stat{}}
		for _, st := range tt.all {
			p.all[st.pid] = st
		}
		equal(t, tt.name, []ProcessGroup{tt.want}, p.processGroups(nil))
	}
}

// newNodeWithLimits has the kernel's limits of tasks, recorded from a node.
func newNodeWithLimits(t *testing.T, mounts string) *node {
	n := newNode(t)
	n.write("proc/loadavg", "11.84 10.70 5.62 8/135 28837\n", "proc/sys/kernel/pid_max", "4194304\n",
		"proc/sys/kernel/threads-max", "192730\n", "proc/1/mountinfo", mounts)
	return n
}

func TestReadPIDs(t *testing.T) {
	n := newNodeWithLimits(t, mountinfoV2)
	n.process(20, 1, "containerd", 'S', "containerd")
	n.process(30, 1, "kubelet", 'S', "kubelet")
	n.write("proc/20/cgroup", "0::/system.slice/containerd.service\n",
		"proc/30/cgroup", "0::/system.slice/kubelet.service\n")
	n.pidsIn("/system.slice", 900, "1000", 2)
	n.pidsIn("/system.slice/containerd.service", 400, "max", 0)
	n.pidsIn("/system.slice/kubelet.service", 40, "57818", 0)
	n.pidsIn("/system.slice/other.service", 99, "100", 7) // not ours
	pods := "/kubepods.slice"
	n.pidsIn(pods, 500, "32768", 0)
	n.pidsIn(pods+"/kubepods-pod1_a.slice", 90, "100", 0)
	n.pidsIn(pods+"/kubepods-pod1_a.slice/cri-containerd-"+idA+".scope", 10, "max", 0)
	n.pidsIn(pods+"/kubepods-pod2.slice", 100, "100", 12)
	n.pidsIn(pods+"/kubepods-pod3.slice", 79, "100", 0)
	n.pidsIn(pods+"/kubepods-pod4.slice", 1, "max", 3) // a limit below it refused
	usage := func(path string, current, limit, events uint64, o Owner, daemons ...int) CgroupUsage {
		return CgroupUsage{Path: path, Usage: Usage{current, limit}, Events: events, Owner: o, Daemons: daemons}
	}
	got, err := ReadPIDs(t.Context(), NewCgroupFS(n.root), n.processes())
	must(t, err)
	equal(t, "ReadPIDs", PIDs{
		Tasks: 135, PIDMax: 4194304, ThreadsMax: 192730,
		Cgroups: []CgroupUsage{
			usage("/system.slice/containerd.service", 400, 0, 0, Owner{Role: RoleRuntime, Unit: "containerd.service"},
				20),
			usage("/system.slice/kubelet.service", 40, 57818, 0, Owner{Role: RoleKubelet, Unit: "kubelet.service"},
				30),
			usage("/system.slice", 900, 1000, 2, Owner{}, 20, 30),
			usage("/kubepods.slice", 500, 32768, 0, Owner{}),
			usage("/kubepods.slice/kubepods-pod2.slice", 100, 100, 12, Owner{PodUID: "2"}),
			usage("/kubepods.slice/kubepods-pod1_a.slice", 90, 100, 0, Owner{PodUID: "1-a"}),
			usage("/kubepods.slice/kubepods-pod4.slice", 1, 0, 3, Owner{PodUID: "4"}),
		},
	}, got)

	n = newNodeWithLimits(t, fixture(t, "mountinfo-hybrid"))
	n.process(30, 1, "kubelet", 'S', "kubelet")
	n.write("proc/30/cgroup", "8:pids:/kubelet\n0::/elsewhere\n")
	n.pidsIn("/pids/kubelet", 8, "10", 1)
	got, err = ReadPIDs(t.Context(), NewCgroupFS(n.root), n.processes())
	must(t, err)
	equal(t, "of a hybrid", []CgroupUsage{usage("/kubelet", 8, 10, 1, Owner{Role: RoleKubelet}, 30)}, got.Cgroups)
}
