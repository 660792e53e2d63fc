package host

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadCgroupsVersion2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeV2(t)
		n.process(30, 1, "kubelet", 'S', "kubelet")
		cg := cgroupRoot + "/"
		stat := func(periods, throttled int) string {
			return fmt.Sprintf("usage_usec 9\nnr_periods %d\nnr_throttled %d\nthrottled_usec 5\n", periods, throttled)
		}
		n.write(
			"proc/30/cgroup", "0::/system.slice/kubelet.service\n",
			cg+"cgroup.stat", "nr_descendants 612\nnr_subsys_cpu 600\nnr_dying_descendants 7\n",
			cg+"system.slice/cpu.max", "150000 100000\n", cg+"system.slice/cpu.stat", stat(100, 10),
			cg+"system.slice/kubelet.service/cpu.max", "max 100000\n",
			cg+"system.slice/kubelet.service/cpu.stat", stat(0, 0),
		)
		for dir, f := range map[string][3]string{
			"": {"0", "0", ""}, "/pod7": {"1", "1", ""}, "/pod7/" + idA: {"1", "0", "71\n72\n"},
			"/pod7/" + idB: {"1", "0", ""}, "/pod8": {"0", "1", "81\n"}, "/../lab": {"1", "1", "30\n31\n"},
		} {
			dir = cg + "kubepods" + dir
			n.write(dir+"/cgroup.events", "populated 1\nfrozen "+f[0]+"\n", dir+"/cgroup.freeze", f[1]+"\n",
				dir+"/cgroup.threads", f[2])
		}
		go func() {
			time.Sleep(time.Second)
			n.write(cg+"system.slice/cpu.stat", stat(110, 19), cg+"other.slice/cpu.stat", stat(110, 110))
		}()
		n.write(cg+"other.slice/cpu.max", "2000 100000\n", cg+"other.slice/cpu.stat", stat(100, 99)) // without a daemon
		got, err := ReadCgroups(t.Context(), NewCgroupFS(n.root), n.processes(), 2*time.Second)
		must(t, err)
		equal(t, "ReadCgroups", Cgroups{
			Version: 2, Total: 612, Dying: 7,
			Frozen: []FrozenCgroup{
				{Path: "/lab", Self: true, Tasks: 2, Daemons: []int{30}},
				{Path: "/kubepods/pod7", Self: true, Owner: Owner{PodUID: "7"}},
				{Path: "/kubepods/pod8", Self: true, Freezing: true, Tasks: 1, Owner: Owner{PodUID: "8"}},
				{Path: "/kubepods/pod7/" + idA, Tasks: 2, Owner: Owner{ObjectID: idA, PodUID: "7"}},
			},
			Throttled: []Throttling{
				{Path: "/system.slice", Quota: 1.5, Periods: 10, Throttled: 9, Over: 2 * time.Second, Daemons: []int{30}},
			},
		}, got)
		n.write("proc/self/cgroup", "0::/other.slice/kdiag.service\n")
		own, _ := OwnQuota(n.root)
		equal(t, "OwnQuota", Throttling{Path: "/other.slice", Quota: 0.02, Periods: 110, Throttled: 110}, own)
	})
}

func TestReadCgroupsHybrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.process(20, 1, "containerd", 'S', "containerd")
		cpu := cgroupRoot + "/cpu/system.slice/containerd.service/"
		freezer := cgroupRoot + "/freezer/kubepods/burstable/pod7/" + idA + "/"
		n.write(
			"proc/1/mountinfo", fixture(t, "mountinfo-hybrid"), "proc/cgroups", fixture(t, "cgroups"),
			"proc/20/cgroup", "1:cpu:/system.slice/containerd.service\n0::/\n",
			cpu+"cpu.stat", "nr_periods 5\nnr_throttled 1\nthrottled_time 1000000\n",
			cpu+"cpu.cfs_quota_us", "20000\n", cpu+"cpu.cfs_period_us", "100000\n",
			cpu+"../cpu.cfs_quota_us", "-1\n", cpu+"../cpu.cfs_period_us", "100000\n",
			freezer+"freezer.state", "FROZEN\n", freezer+"freezer.self_freezing", "1\n",
			freezer+"tasks", "71\n72\n73\n",
			cgroupRoot+"/freezer/kubepods/freezer.state", "THAWED\n",
			cgroupRoot+"/freezer/odd/freezer.state", "FREEZING\n", cgroupRoot+"/freezer/odd/tasks", "5\n",
			cgroupRoot+"/unified/odd/cgroup.events", "populated 0\nfrozen 1\n",
			cgroupRoot+"/unified/odd/cgroup.freeze", "1\n",
		)
		got, err := ReadCgroups(t.Context(), NewCgroupFS(n.root), n.processes(), time.Second)
		must(t, err)
		equal(t, "ReadCgroups", Cgroups{
			Version: 1, Total: 31, Dying: -1,
			ByController: map[string]int{
				"cpuset": 1, "cpu": 1, "cpuacct": 1, "blkio": 1, "memory": 31, "devices": 1, "freezer": 1, "pids": 1,
			},
			Frozen: []FrozenCgroup{
				{Path: "/odd", Freezing: true, Tasks: 1},
				{
					Path: "/kubepods/burstable/pod7/" + idA, Self: true, Tasks: 3,
					Owner: Owner{ObjectID: idA, PodUID: "7"},
				},
				{Path: "/odd", Self: true},
			},
			Throttled: []Throttling{{
				Path: "/system.slice/containerd.service", Quota: 0.2, Over: time.Second,
				Daemons: []int{20}, Owner: Owner{Role: RoleRuntime, Unit: "containerd.service"},
			}},
		}, got)
	})
}

func mountsIn(text string) mountTable {
	table, _ := parseMounts(strings.NewReader(text), "")
	return table
}

func TestHierarchies(t *testing.T) {
	misc, _ := mountsIn(fixture(t, "mountinfo-hybrid")).hierarchies("/host").of("misc")
	equal(t, "misc of a hybrid", "/sys/fs/cgroup/unified", misc.point)
	line := "9 8 0:1 /docker/x /a\\040b rw shared:1 - cgroup cgroup rw,cpu,cpuacct\nnothing\n"
	joined := mountsIn(line).hierarchies("")
	equal(t, "controllers in a container", []string{"rw", "cpu", "cpuacct"}, joined[0].options)
	for cgroup, want := range map[string]string{
		"/docker/x": "/a b", "/docker/x/y": "/a b/y", "/docker/xy": "", "/docker/x/../y": "", "": "",
	} {
		got, _ := joined[0].folder(cgroup)
		equal(t, cgroup, want, got)
	}
}

// TestHungGroup has a file of one control group that is never answered. It costs only what its reader reads.
func TestHungGroup(t *testing.T) {
	n := newNodeWithLimits(t, mountinfoV2)
	n.memoryIn("/system.slice/a.service", 9, 0, 0, "max")
	n.process(20, 1, "containerd", 'S', "containerd")
	n.pidsIn("/system.slice/containerd.service", 62, "62", 0)
	n.write(cgroupRoot+"/cgroup.stat", "nr_descendants 3\n", "proc/20/cgroup", "0::/system.slice/containerd.service\n")
	held := untilRead(t, n.fifo(cgroupRoot+"/kubepods/pids.max"))
	fs, processes := NewCgroupFS(n.root), n.processes()
	pids, err := ReadPIDs(held, fs, processes)
	failed(t, "ReadPIDs", err, "reading /sys/fs/cgroup/kubepods: no answer in time")
	equal(t, "the daemon's group", Usage{62, 62}, pids.Cgroups[0].Usage)
	got, err := ReadConsumers(t.Context(), fs, processes, Pressure{}, PIDs{})
	failed(t, "ReadConsumers", err, "")
	equal(t, "consumers of memory", "/system.slice/a.service", got.Memory[0].Path)
	_, err = ReadCgroups(t.Context(), fs, processes, 0)
	failed(t, "ReadCgroups", err, "")
	frozen := untilRead(t, n.fifo(cgroupRoot+"/kubepods/cgroup.events"))
	cgroups, err := ReadCgroups(frozen, fs, processes, 0)
	failed(t, "ReadCgroups", err, "reading /sys/fs/cgroup/kubepods: no answer in time")
	equal(t, "the number of groups", 3, cgroups.Total)
}

func TestOwnerOfCgroup(t *testing.T) {
	inPod := Owner{ObjectID: idA, PodUID: "7"}
	below := "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-"
	systemd := "/kubepods.slice/kubepods-burstable.slice/"
	for cgroup, want := range map[string]Owner{
		"/": {}, "/podman": {}, "/kubepods/burstable": {},
		"/system.slice/containerd.service":                                         {Unit: "containerd.service"},
		"/system.slice/kubelet.service/x":                                          {Unit: "kubelet.service"},
		"/user.slice/u.slice/session-1.scope":                                      {Unit: "session-1.scope"},
		"/kubepods/burstable/pod1b2c-3d":                                           {PodUID: "1b2c-3d"},
		systemd + "kubepods-burstable-pod1b_2c.slice":                              {PodUID: "1b-2c"},
		"/podman.slice/libpod-" + idA + ".scope":                                   {ObjectID: idA},
		"/k8s.io/" + idA:                                                           {ObjectID: idA},
		"/docker/" + idB + "/kubelet/kubepods/pod7/" + idA:                         inPod, // in a node of kind
		systemd + "kubepods-burstable-pod7.slice/cri-containerd-" + idA + ".scope": inPod,
		"/kubepods.slice/kubepods-pod7.slice/crio-" + idA + ".scope/container":     inPod,
		below + "pod7.slice/cri-containerd-" + idA + ".scope":                      inPod,
		"/kubepods/pod7/" + idA + "/system.slice/sshd.service": {
			ObjectID: idA, PodUID: "7", Unit: "sshd.service",
		},
		"/kubepods/pod7/" + idA + "/kubepods/pod8/" + idB:         inPod, // it is the pod that chose these names
		"/kubepods/pod7/" + idA + "/" + idB:                       inPod,
		"/system.slice/kubepods-pod1.slice:cri-containerd:" + idA: {ObjectID: idA},
	} {
		equal(t, cgroup, want, OwnerOfCgroup(cgroup))
	}
	for lines, want := range map[string]Owner{
		"9:pids:/system.slice/containerd.service\n4:memory:/kubepods/pod7/" + idA + "\n": inPod,
		"9:pids:/\n1:name=systemd:/system.slice/x.service\n":                             {Unit: "x.service"},
	} {
		equal(t, lines, want, ownerOfCgroups(parseMemberships(lines)))
	}
}
