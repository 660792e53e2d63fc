package host

import (
	"fmt"
	"testing"
)

// memoryIn adds a control group with the files of the memory controller of version 2, in MiB.
func (n *node) memoryIn(dir string, usage, inactive, shmem int, limit string) {
	dir = cgroupRoot + dir
	n.Write(dir+"/memory.current", fmt.Sprintln(usage<<20), dir+"/memory.max", limit+"\n",
		dir+"/memory.stat", fmt.Sprintf("anon 1\ninactive_file %d\nshmem %d\n", inactive<<20, shmem<<20))
}

// pidsIn adds a cgroup with the files of the pids controller.
func (n *node) pidsIn(dir string, current int, limit string, refused int) {
	dir = cgroupRoot + dir
	n.Write(dir+"/pids.current", fmt.Sprintln(current), dir+"/pids.max", limit+"\n",
		dir+"/pids.events", fmt.Sprintf("max %d\n", refused))
}

func consumer(path string, current, limit uint64, o Owner) Consumer {
	return Consumer{Path: path, Dir: "/" + cgroupRoot + path, Usage: Usage{current, limit}, Owner: o}
}

// TestMemoryConsumers has pods and units that use memory, and of which some wait for it.
func TestMemoryConsumers(t *testing.T) {
	const (
		burstable = "/kubepods.slice/kubepods-burstable.slice"
		pod       = burstable + "/kubepods-burstable-pod0f4f_7b1a.slice"
	)
	first := consumer(pod, 800<<20, 1<<30, Owner{PodUID: "0f4f-7b1a"})
	first.Shmem = 700 << 20
	n := newNodeV2(t)
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
	for dir, avg10 := range map[string]string{
		"/kubepods.slice": "50.00", pod: "96.50", "/kubepods.slice/kubepods-pod2.slice": "0.00",
		"/system.slice/containerd.service": "2.00",
	} {
		n.Write(cgroupRoot+dir+"/memory.pressure", "some avg10=99.00 avg60=9.00 avg300=1.00 total=5\n"+
			"full avg10="+avg10+" avg60=8.00 avg300=1.00 total=2\n")
	}
	waits := Pressure{Memory: &Stall{Full: Averages{Avg10: 1}}}
	got, err := ReadConsumers(t.Context(), NewCgroupFS(n.Root), n.processes(), waits, PIDs{})
	failed(t, "ReadConsumers", err, "")
	equal(t, "ReadConsumers", Consumers{Memory: []Consumer{
		first,
		consumer("/kubepods.slice/kubepods-pod2.slice", 300<<20, 0, Owner{PodUID: "2"}),
		consumer("/system.slice/containerd.service", 250<<20, 0, Owner{Unit: "containerd.service"}),
		consumer("/kubepods.slice/kubepods-pod3.slice", 200<<20, 0, Owner{PodUID: "3"}),
		consumer("/user.slice/user-0.slice/user@0.service", 120<<20, 0, Owner{Unit: "user@0.service"}),
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
	n := newNodeV2(t)
	n.pidsIn("/kubepods.slice", 500, "max", 0)
	n.pidsIn(pod, 400, "max", 0)
	n.pidsIn(container, 399, "512", 0)
	n.pidsIn("/kubepods.slice/kubepods-pod2.slice", 100, "1024", 0)
	n.pidsIn("/system.slice/kubelet.service", 30, "max", 0)
	n.process(40, 1, "node", 'S', "node")
	n.process(41, 40, "sh", 'Z', "")
	n.process(42, 40, "sh", 'Z', "")
	n.stat(stat{pid: 50, ppid: 1, comm: "java", state: 'S', threads: 90})
	n.Write("proc/40/cgroup", "0::"+container+"\n", cgroupRoot+container+"/cgroup.procs", "40\n41\n42\n77777\n",
		cgroupRoot+"/kubepods.slice/kubepods-pod2.slice/cgroup.procs", "50\n",
		cgroupRoot+"/system.slice/kubelet.service/memory.current", "1\n")
	inPod := Owner{ObjectID: idA, PodUID: "1-a"}
	group := func(path string, current uint64, pod string) CgroupUsage {
		return CgroupUsage{Path: path, Usage: Usage{current, 100}, Owner: Owner{PodUID: pod}}
	}
	processGroups := []ProcessGroup{
		{Name: "java", Processes: 1, Threads: 90, PID: 50},
		{Name: "sh", Processes: 2, Threads: 2, PID: 40, Parent: "node", Owner: inPod},
		{Name: "node", Processes: 1, Threads: 1, PID: 40, Owner: inPod},
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
		near := PIDs{Tasks: tt.tasks, PIDMax: 100, Cgroups: tt.near}
		got, err := ReadConsumers(t.Context(), NewCgroupFS(n.Root), n.processes(), Pressure{}, near)
		failed(t, tt.name, err, "")
		equal(t, tt.name, tt.want, got)
	}
}

func TestProcessGroups(t *testing.T) {
	for _, tt := range []struct {
		all  []stat
		want ProcessGroup
	}{
		{ // a fork bomb, where each is the child of the one before
			[]stat{{pid: 101, ppid: 100, comm: "x"}, {pid: 102, ppid: 101, comm: "x"}, {pid: 103, ppid: 102, comm: "x"}},
			ProcessGroup{Name: "x", Processes: 3, Threads: 3},
		},
		{ // more than half are of one parent
			[]stat{{pid: 5, ppid: 4, comm: "x"}, {pid: 6, ppid: 4, comm: "x"}, {pid: 7, ppid: 3, comm: "x"}},
			ProcessGroup{Name: "x", Processes: 3, Threads: 3, PID: 4},
		},
		{
			[]stat{{pid: 2, ppid: 2, comm: "kthreadd", kernel: true}, {pid: 7, ppid: 2, comm: "nfsd", kernel: true}},
			ProcessGroup{Name: "kernel threads", Processes: 2, Threads: 2, PID: 2, Parent: "kthreadd"},
		},
	} {
		p := Population{all: map[int]stat{}}
		for _, st := range tt.all {
			p.all[st.pid] = st
		}
		equal(t, tt.want.Name, []ProcessGroup{tt.want}, p.processGroups(nil))
	}
}

// newNodeWithLimits has the kernel's limits of tasks, recorded from a node.
func newNodeWithLimits(t *testing.T) *node {
	n := newNodeV2(t)
	n.Write("proc/loadavg", "11.84 10.70 5.62 8/135 28837\n", "proc/sys/kernel/pid_max", "4194304\n",
		"proc/sys/kernel/threads-max", "192730\n")
	return n
}

func TestReadPIDs(t *testing.T) {
	n := newNodeWithLimits(t)
	n.process(20, 1, "containerd", 'S', "containerd")
	n.Write("proc/20/cgroup", "0::/system.slice/containerd.service\n")
	n.pidsIn("/system.slice", 900, "1000", 2)
	n.pidsIn("/system.slice/containerd.service", 400, "max", 0)
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
	got, err := ReadPIDs(t.Context(), NewCgroupFS(n.Root), n.processes())
	must(t, err)
	equal(t, "ReadPIDs", PIDs{
		Tasks: 135, PIDMax: 4194304, ThreadsMax: 192730,
		Cgroups: []CgroupUsage{
			usage("/system.slice/containerd.service", 400, 0, 0, Owner{Role: RoleRuntime, Unit: "containerd.service"},
				20),
			usage("/system.slice", 900, 1000, 2, Owner{}, 20),
			usage("/kubepods.slice", 500, 32768, 0, Owner{}),
			usage("/kubepods.slice/kubepods-pod2.slice", 100, 100, 12, Owner{PodUID: "2"}),
			usage("/kubepods.slice/kubepods-pod1_a.slice", 90, 100, 0, Owner{PodUID: "1-a"}),
			usage("/kubepods.slice/kubepods-pod4.slice", 1, 0, 3, Owner{PodUID: "4"}),
		},
	}, got)
}
