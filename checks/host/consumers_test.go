package host

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// memoryIn adds a control group with the files of the memory controller of version 2, in MiB.
func (n *node) memoryIn(dir string, usage, inactive, shmem int, limit string) {
	n.write(dir+"/memory.current", fmt.Sprintln(usage<<20))
	n.write(dir+"/memory.stat", fmt.Sprintf("anon 1\nactive_file 11\ninactive_file %d\nshmem %d\n", inactive<<20, shmem<<20))
	n.write(dir+"/memory.max", limit+"\n")
}

// memoryInV1 is memoryIn for version 1. The numbers of the group without what is below it differ on purpose.
func (n *node) memoryInV1(dir string, usage, inactive, shmem int, limit string) {
	n.write(dir+"/memory.usage_in_bytes", fmt.Sprintln(usage<<20))
	n.write(dir+"/memory.stat", fmt.Sprintf("shmem 7\nactive_file 6\ninactive_file 5\ntotal_active_file 11\ntotal_shmem %d\ntotal_inactive_file %d\n", shmem<<20, inactive<<20))
	n.write(dir+"/memory.limit_in_bytes", limit+"\n")
}

const (
	cg2     = "sys/fs/cgroup"
	podUID  = "0f4f4cd2-7b1a-4d4c-9b3f-b0c1d2e3f405"
	podName = "0f4f4cd2_7b1a_4d4c_9b3f_b0c1d2e3f405"
)

func TestMemoryConsumers(t *testing.T) {
	slice := func(qos, uid string) string {
		return "/kubepods.slice/kubepods-" + qos + ".slice/kubepods-" + qos + "-pod" + uid + ".slice"
	}
	for _, tt := range []struct {
		name  string
		build func(*node)
		want  []Consumer
	}{
		{"version 2, systemd", func(n *node) {
			n.write("proc/1/mountinfo", mountinfoV2)
			n.memoryIn(cg2+"/kubepods.slice", 9000, 0, 0, "max")
			n.memoryIn(cg2+"/kubepods.slice/kubepods-burstable.slice", 8000, 0, 0, "max")
			n.memoryIn(cg2+slice("burstable", podName), 900, 100, 700, "1073741824")
			n.memoryIn(cg2+slice("burstable", podName)+"/cri-containerd-"+idA+".scope", 890, 0, 0, "max")
			n.memoryIn(cg2+slice("besteffort", "1"), 3000, 2900, 0, "max") // nearly all can be dropped
			n.memoryIn(cg2+"/kubepods.slice/kubepods-pod2.slice", 300, 0, 0, "max")
			n.memoryIn(cg2+"/kubepods.slice/kubepods-pod3.slice", 200, 0, 0, "max")
			n.memoryIn(cg2+"/system.slice", 2000, 0, 0, "max")
			n.memoryIn(cg2+"/system.slice/containerd.service", 400, 150, 0, "max")
			n.memoryIn(cg2+"/user.slice/user-0.slice/user@0.service", 120, 0, 0, "max")
			n.memoryIn(cg2+"/user.slice/user-0.slice/user@0.service/app.slice", 119, 0, 0, "max")
			n.write(cg2+"/system.slice/gone.service/memory.current", "999999999999\n")
			n.memoryIn(cg2+"/init.scope", 0, 0, 0, "max")
		}, []Consumer{
			{Path: slice("burstable", podName), Dir: "/" + cg2 + slice("burstable", podName), Usage: Usage{800 << 20, 1 << 30}, Shmem: 700 << 20, Files: 11, Owner: Owner{PodUID: podUID}},
			{Path: "/kubepods.slice/kubepods-pod2.slice", Dir: "/" + cg2 + "/kubepods.slice/kubepods-pod2.slice", Usage: Usage{300 << 20, 0}, Files: 11, Owner: Owner{PodUID: "2"}},
			{Path: "/system.slice/containerd.service", Dir: "/" + cg2 + "/system.slice/containerd.service", Usage: Usage{250 << 20, 0}, Files: 11, Owner: Owner{Unit: "containerd.service"}},
			{Path: "/kubepods.slice/kubepods-pod3.slice", Dir: "/" + cg2 + "/kubepods.slice/kubepods-pod3.slice", Usage: Usage{200 << 20, 0}, Files: 11, Owner: Owner{PodUID: "3"}},
			{Path: "/user.slice/user-0.slice/user@0.service", Dir: "/" + cg2 + "/user.slice/user-0.slice/user@0.service", Usage: Usage{120 << 20, 0}, Files: 11, Owner: Owner{Unit: "user@0.service"}},
		}},
		{"version 1, cgroupfs", func(n *node) {
			n.write("proc/1/mountinfo", string(fixture(n.t, "mountinfo-hybrid")))
			memory := cg2 + "/memory"
			n.write(cg2+"/pids/cgroup.procs", "")
			n.memoryInV1(memory, 9000, 0, 0, "9223372036854771712")
			n.memoryInV1(memory+"/kubepods", 8000, 0, 0, "9223372036854771712")
			n.memoryInV1(memory+"/kubepods/burstable/pod"+podUID, 900, 100, 700, "1073741824")
			n.memoryInV1(memory+"/kubepods/burstable/pod"+podUID+"/"+idA, 900, 100, 0, "1073741824")
			n.memoryInV1(memory+"/kubepods/besteffort", 0, 0, 0, "9223372036854771712")
			n.memoryInV1(memory+"/kubepods/pod2", 30, 40, 0, "9223372036854771712") // between two reads it may look so
			n.memoryInV1(memory+"/kubelet", 50, 0, 0, "9223372036854771712")
			n.memoryInV1(memory+"/docker/"+idB, 60, 0, 0, "9223372036854771712")
			n.memoryInV1(memory+"/docker/"+idB+"/inside", 59, 0, 0, "9223372036854771712")
		}, []Consumer{
			{Path: "/kubepods/burstable/pod" + podUID, Dir: "/" + cg2 + "/memory/kubepods/burstable/pod" + podUID, Usage: Usage{800 << 20, 1 << 30}, Shmem: 700 << 20, Files: 11, Owner: Owner{PodUID: podUID}},
			{Path: "/docker/" + idB, Dir: "/" + cg2 + "/memory/docker/" + idB, Usage: Usage{60 << 20, 0}, Files: 11, Owner: Owner{ObjectID: idB}},
			{Path: "/kubelet", Dir: "/" + cg2 + "/memory/kubelet", Usage: Usage{50 << 20, 0}, Files: 11},
			{Path: "/kubepods/pod2", Dir: "/" + cg2 + "/memory/kubepods/pod2", Files: 11, Owner: Owner{PodUID: "2"}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			tt.build(n)
			got, err := ReadConsumers(t.Context(), n.root, n.people(), Pressure{}, PIDs{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Consumers{Memory: tt.want}, got); diff != "" {
				t.Errorf("ReadConsumers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPIDConsumers(t *testing.T) {
	const pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_a.slice"
	container := pod + "/cri-containerd-" + idA + ".scope"
	build := func(t *testing.T, mounts, point string) *node {
		n := newNode(t)
		n.write("proc/1/mountinfo", mounts)
		n.pidsIn(point+"/kubepods.slice", 500, "max", 0)
		n.pidsIn(point+pod, 400, "max", 0)
		n.pidsIn(point+container, 399, "512", 0)
		n.write(point+container+"/cgroup.procs", "40\n41\n42\n77777\n")
		n.pidsIn(point+"/kubepods.slice/kubepods-pod2.slice", 100, "1024", 0)
		n.write(point+"/kubepods.slice/kubepods-pod2.slice/cgroup.procs", "50\n")
		n.pidsIn(point+"/system.slice/kubelet.service", 30, "max", 0)
		for _, file := range []string{"/memory.current", "/memory/x.service/memory.usage_in_bytes"} {
			n.write(cg2+"/system.slice/kubelet.service"+file, "1\n") // who has memory is known, and gone by the second look
			n.write(cg2+file, "1\n")
		}
		n.process(40, 1, "node", 'S', "node")
		n.write("proc/40/cgroup", "8:pids:"+container+"\n0::"+container+"\n")
		n.process(41, 40, "sh", 'Z', "")
		n.process(42, 40, "sh", 'Z', "")
		n.write("proc/50/stat", statLineOf(stat{pid: 50, ppid: 1, comm: "java", state: 'S', start: 5, threads: 90}))
		return n
	}
	processGroups := []ProcessGroup{
		{Name: "java", Processes: 1, Threads: 90, PID: 50},
		{Name: "sh", Processes: 2, Threads: 2, PID: 40, Parent: "node", Owner: Owner{ObjectID: idA, PodUID: "1-a"}},
		{Name: "node", Processes: 1, Threads: 1, PID: 40, Owner: Owner{ObjectID: idA, PodUID: "1-a"}},
	}
	for _, tree := range []struct{ name, mounts, point string }{
		{"version 1", string(fixture(t, "mountinfo-hybrid")), cg2 + "/pids"},
		{"version 2", mountinfoV2, cg2},
	} {
		consumer := func(path string, current, limit uint64, o Owner) Consumer {
			return Consumer{Path: path, Dir: "/" + tree.point + path, Usage: Usage{current, limit}, Owner: o}
		}
		inContainer := consumer(container, 399, 512, Owner{ObjectID: idA, PodUID: "1-a"})
		pods := []Consumer{
			consumer(pod, 400, 0, Owner{PodUID: "1-a"}), consumer("/kubepods.slice/kubepods-pod2.slice", 100, 1024, Owner{PodUID: "2"}),
		}
		for _, tt := range []struct {
			name, below string
			want        Consumers
		}{
			{"of the node", "", Consumers{PIDs: append(pods, consumer("/system.slice/kubelet.service", 30, 0, Owner{Unit: "kubelet.service"})), ProcessGroups: processGroups}},
			{"of all pods", "/kubepods.slice", Consumers{PIDs: pods, ProcessGroups: processGroups}},
			{"of a pod", pod, Consumers{PIDs: []Consumer{inContainer}, ProcessGroups: processGroups[1:]}},
			{"of a container", container, Consumers{ProcessGroups: processGroups[1:]}},
		} {
			t.Run(tree.name+", "+tt.name, func(t *testing.T) {
				n := build(t, tree.mounts, tree.point)
				near := PIDs{Tasks: 1, PIDMax: 100, Cgroups: []CgroupUsage{{Path: "/far", Usage: Usage{1, 100}}}}
				if tt.below != "" {
					near.Cgroups = append(near.Cgroups, CgroupUsage{Path: tt.below, Usage: Usage{90, 100}})
				}
				got, err := ReadConsumers(t.Context(), n.root, n.people(), Pressure{}, near)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("ReadConsumers (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestStalledGroups(t *testing.T) {
	n := newNode(t)
	n.write("proc/1/mountinfo", mountinfoV2)
	stalled := func(dir string, avg10 string) {
		n.write(cg2+dir+"/memory.pressure", "some avg10=99.00 avg60=9.00 avg300=1.00 total=5\nfull avg10="+avg10+" avg60=8.00 avg300=1.00 total=2\n")
	}
	stalled("/kubepods.slice", "50.00")
	stalled("/kubepods.slice/kubepods-pod1.slice", "96.50")
	stalled("/kubepods.slice/kubepods-pod2.slice", "0.00")
	stalled("/system.slice/cron.service", "2.00")
	n.write(cg2+"/system.slice/cron.service/memory.current", "1\n")
	waits := Pressure{Memory: &Stall{Full: Averages{Avg10: 1}}}
	got, err := ReadConsumers(t.Context(), n.root, n.people(), waits, PIDs{})
	full := Averages{Avg60: 8, Avg300: 1, Total: 2 * time.Microsecond}
	pod, cron := full, full
	pod.Avg10, cron.Avg10 = 96.5, 2
	want := Consumers{Stalled: []StalledGroup{
		{Path: "/kubepods.slice/kubepods-pod1.slice", Dir: "/" + cg2 + "/kubepods.slice/kubepods-pod1.slice", Full: pod, Owner: Owner{PodUID: "1"}},
		{Path: "/system.slice/cron.service", Dir: "/" + cg2 + "/system.slice/cron.service", Full: cron, Owner: Owner{Unit: "cron.service"}},
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("ReadConsumers: %v (-want +got):\n%s", err, diff)
	}
}

// TestTightest wants a limit of the node or its services before that of a pod, and the fullest of each.
func TestTightest(t *testing.T) {
	group := func(path string, current uint64, pod string) CgroupUsage {
		return CgroupUsage{Path: path, Usage: Usage{current, 100}, Owner: Owner{PodUID: pod}}
	}
	for _, tt := range []struct {
		name string
		pids PIDs
		want string
	}{
		{"nothing", PIDs{}, ""},
		{"none is near", PIDs{Tasks: 10, PIDMax: 100, Cgroups: []CgroupUsage{group("/a", 79, "")}}, ""},
		{"a pod", PIDs{Tasks: 10, PIDMax: 100, Cgroups: []CgroupUsage{group("/a", 80, "1"), group("/b", 90, "2")}}, "/b"},
		{"a service", PIDs{Tasks: 10, PIDMax: 100, Cgroups: []CgroupUsage{group("/a", 99, "1"), group("/b", 80, "")}}, "/b"},
		{"the node is nearer", PIDs{Tasks: 95, ThreadsMax: 100, Cgroups: []CgroupUsage{group("/b", 90, "")}}, ""},
		{"the node and a pod", PIDs{Tasks: 85, PIDMax: 100, Cgroups: []CgroupUsage{group("/b", 99, "1")}}, ""},
	} {
		if got := tt.pids.tightest(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestConsumersUnknown wants an error for what is not known, and nobody else named instead.
func TestConsumersUnknown(t *testing.T) {
	waits := Pressure{Memory: &Stall{Full: Averages{Avg10: 1}}}
	below := func(path string) PIDs { return PIDs{Cgroups: []CgroupUsage{{Path: path, Usage: Usage{9, 10}}}} }
	for _, tt := range []struct {
		name   string
		mounts string
		pids   PIDs
		err    string
	}{
		{"no control groups", "22 27 0:21 / /proc rw,relatime - proc proc rw\n", PIDs{}, "none among the mounts"},
		{"no memory controller", "32 31 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", PIDs{}, "has the memory controller"},
		{"memory is not turned on", mountinfoV2, PIDs{}, "no control group has memory.current"},
		{"no pids controller", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", PIDs{}, "has the pids controller"},
		{"version 1 does not tell who waits", "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", PIDs{}, "version 1 do not show"},
		{"a group that is gone", mountinfoV2, below("/kubepods/podgone"), "no such file"},
		{"a group that leads away", mountinfoV2, below("/../../../proc"), "outside of what is mounted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.write("proc/1/mountinfo", tt.mounts)
			n.write(cg2+"/system.slice/a.service/cgroup.procs", "")
			n.process(40, 1, "node", 'S', "node")
			got, err := ReadConsumers(t.Context(), n.root, n.people(), waits, tt.pids)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if len(tt.pids.Cgroups) > 0 && len(got.ProcessGroups) > 0 {
				t.Errorf("not in the group: %+v", got.ProcessGroups)
			}
		})
	}
	if _, err := ReadConsumers(t.Context(), t.TempDir(), Population{}, Pressure{}, PIDs{}); err == nil || !strings.Contains(err.Error(), "could not be listed") {
		t.Errorf("no processes: %v", err)
	}
}

// TestConsumersLeaveBehind wants the processes named though a file of a control group never ends, which is what a FIFO shows.
func TestConsumersLeaveBehind(t *testing.T) {
	n := newNode(t)
	n.write("proc/1/mountinfo", mountinfoV2)
	n.memoryIn(cg2+"/system.slice/a.service", 10, 0, 0, "max")
	n.write("proc/40/stat", statLineOf(stat{pid: 40, ppid: 1, comm: "java", state: 'S', start: 5, rss: 1000 * os.Getpagesize()}))
	people := n.people()
	fifo := n.fifo(cg2 + "/system.slice/a.service/memory.stat")
	got, err := ReadConsumers(untilRead(t, fifo), n.root, people, Pressure{}, PIDs{})
	if err == nil || !strings.Contains(err.Error(), "a.service: no answer in time") {
		t.Errorf("error %v", err)
	}
	if len(got.Resident) != 1 || got.Memory != nil {
		t.Errorf("ReadConsumers = %+v, want the process alone", got)
	}
}

func TestProcessGroups(t *testing.T) {
	bomb := func(n int) []stat { // each the child of the one before
		var list []stat
		for i := range n {
			list = append(list, stat{pid: 100 + i, ppid: 99 + i, comm: "bash", threads: 1})
		}
		return list
	}
	kernel := func(pid int, name string) stat { return stat{pid: pid, ppid: 2, comm: name, kernel: true, threads: 1} }
	for _, tt := range []struct {
		name    string
		all     []stat
		members map[int]bool
		want    []ProcessGroup
	}{
		{"nobody", nil, nil, nil},
		{"a fork bomb", bomb(9), nil, []ProcessGroup{{Name: "bash", Processes: 9, Threads: 9}}},
		{"half of them have one parent", []stat{{pid: 5, ppid: 4, comm: "x"}, {pid: 6, ppid: 4, comm: "x"}, {pid: 7, ppid: 3, comm: "x"}, {pid: 8, ppid: 2, comm: "x"}}, nil, []ProcessGroup{{Name: "x", Processes: 4, Threads: 4}}},
		{"more than half do", []stat{{pid: 5, ppid: 4, comm: "x"}, {pid: 6, ppid: 4, comm: "x"}, {pid: 7, ppid: 3, comm: "x"}}, nil, []ProcessGroup{{Name: "x", Processes: 3, Threads: 3, PID: 4}}},
		{"threads of the kernel", []stat{kernel(2, "kthreadd"), kernel(7, "kworker/0:1"), kernel(8, "nfsd")}, nil, []ProcessGroup{{Name: "kernel threads", Processes: 3, Threads: 3, PID: 2, Parent: "kthreadd"}}},
		{"a leak of threads among the members", append(bomb(9), stat{pid: 7, ppid: 1, comm: "java", threads: 5}), map[int]bool{7: true, 100: true}, []ProcessGroup{{Name: "java", Processes: 1, Threads: 5, PID: 7}, {Name: "bash", Processes: 1, Threads: 1, PID: 100}}},
		{"nobody of it is left", bomb(9), map[int]bool{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Population{all: map[int]stat{}}
			for _, st := range tt.all {
				p.all[st.pid] = st
			}
			if diff := cmp.Diff(tt.want, p.processGroups(tt.members), cmp.Transformer("nil", func(c []ProcessGroup) []ProcessGroup { return append([]ProcessGroup(nil), c...) })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHeaviestReadsFew wants the right three although the order of the usages is not that of the working sets, without a look at those
// that cannot be among them.
func TestHeaviestReadsFew(t *testing.T) {
	var groups []Consumer
	for i := range 100 {
		groups = append(groups, Consumer{Path: fmt.Sprint(i), Usage: Usage{Current: uint64(i)}})
	}
	read := 0
	got := heaviest(groups, func(g *Consumer) bool {
		read++
		if g.Path == "99" {
			g.Current = 1
		}
		return g.Path != "98" // gone meanwhile
	})
	var names []string
	for _, g := range got {
		names = append(names, g.Path)
	}
	if diff := cmp.Diff([]string{"97", "96", "95"}, names); diff != "" || read != 5 {
		t.Errorf("%d were read: %s", read, diff)
	}
}
