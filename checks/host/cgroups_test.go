package host

import (
	"fmt"
	"os"
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
		n.Write(
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
			n.Write(dir+"/cgroup.events", "populated 1\nfrozen "+f[0]+"\n", dir+"/cgroup.freeze", f[1]+"\n",
				dir+"/cgroup.threads", f[2])
		}
		n.Write(cg+"kubepods/cpu.max", "2000 100000\n", cg+"kubepods/cpu.stat", stat(7, 7))
		time.AfterFunc(time.Second, func() {
			n.Write(cg+"system.slice/cpu.stat", stat(110, 19), cg+"other.slice/cpu.stat", stat(110, 110),
				cg+"kubepods/cpu.stat", stat(27, 20))
		})
		n.Write(cg+"other.slice/cpu.max", "2000 100000\n", cg+"other.slice/cpu.stat", stat(100, 99)) // without a daemon
		got, err := ReadCgroups(t.Context(), NewCgroupFS(n.Root), n.processes(), 2*time.Second)
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
				{Path: "/kubepods", Quota: 0.02, Periods: 20, Throttled: 13, Over: 2 * time.Second},
			},
		}, got)
		n.Write("proc/self/cgroup", "0::/other.slice/kdiag.service\n")
		own, _ := OwnQuota(n.Root)
		equal(t, "OwnQuota", Throttling{Path: "/other.slice", Quota: 0.02, Periods: 110, Throttled: 110}, own)
	})
}

func mountsIn(text string) mountTable {
	table, _ := parseMounts(strings.NewReader(text), "")
	return table
}

// TestHungGroup has a file of one control group that is never answered. It costs only what its reader reads.
func TestHungGroup(t *testing.T) {
	n := newNodeWithLimits(t)
	n.memoryIn("/system.slice/a.service", 9, 0, 0, "max")
	n.process(20, 1, "containerd", 'S', "containerd")
	n.pidsIn("/system.slice/containerd.service", 62, "62", 0)
	n.Write(cgroupRoot+"/cgroup.stat", "nr_descendants 3\n", "proc/20/cgroup", "0::/system.slice/containerd.service\n")
	held := untilRead(t, n.fifo(cgroupRoot+"/kubepods/pids.max"))
	fs, processes := NewCgroupFS(n.Root), n.processes()
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
		"/": {}, "/podman": {},
		"/system.slice/containerd.service":                                         {Unit: "containerd.service"},
		"/kubepods/burstable/pod1b2c-3d":                                           {PodUID: "1b2c-3d"},
		systemd + "kubepods-burstable-pod1b_2c.slice":                              {PodUID: "1b-2c"},
		"/podman.slice/libpod-" + idA + ".scope":                                   {ObjectID: idA},
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
	lines := "9:pids:/system.slice/containerd.service\n4:memory:/kubepods/pod7/" + idA + "\n"
	equal(t, lines, inPod, ownerOfCgroups(parseMemberships(lines)))
}

// TestReadStarvation checks how long threads are seen to wait for a CPU, and the limits of writes and memory.
func TestReadStarvation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNodeV2(t)
		n.process(10, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -namespace k8s.io -id s -address a.sock")
		n.process(20, 1, "containerd", 'S', "containerd")
		n.Link("sys/dev/block/8:0", "../../devices/virtual/block/sda")
		const group = "/system.slice/containerd.service"
		n.Write("proc/10/cgroup", "0::"+group+"\n", "proc/20/cgroup", "0::"+group+"\n")
		for file, text := range map[string]string{
			group + "/io.max":      "8:0 rbps=max wbps=1048576 riops=max wiops=40\n",
			group + "/memory.high": "6291456\n", group + "/memory.max": "max\n",
			group + "/memory.current": "7340032\n", group + "/memory.events": "high 1079\noom 2\noom_kill 2\n",
			group + "/cgroup.procs": "10\n20\n",
			group + "/memory.pressure": "some avg10=93.00 avg60=41.00 avg300=9.50 total=5\n" +
				"full avg10=92.00 avg60=40.00 avg300=9.00 total=2\n",
			"/system.slice/memory.max": "1073741824\n", "/system.slice/memory.events": "oom_kill 3\n",
		} {
			n.Write(cgroupRoot+file, text)
		}
		thread := func(tid int, state byte, schedstat string) {
			dir := procFile(20, fmt.Sprint("task/", tid))
			n.Write(dir+"/stat", statLine(stat{pid: tid, comm: "containerd", state: state}), dir+"/schedstat", schedstat)
		}
		thread(1, 'S', "5000000 7000000 3\n")
		thread(2, 'R', "9000000 0 1\n")
		processes := n.processes()
		time.AfterFunc(time.Second, func() {
			thread(1, 'S', "6000000 907000000 4\n")
		})
		got, err := ReadStarvation(t.Context(), NewCgroupFS(n.Root), processes, 2*time.Second)
		must(t, err)
		owner := Owner{Role: RoleRuntime, Unit: "containerd.service"}
		limits := []MemoryLimit{{
			Path: group, Dir: "/sys/fs/cgroup" + group, Usage: Usage{Current: 7 << 20}, High: 6 << 20, Kills: 2,
			Older: true, Full: Averages{92, 40, 9}, Daemons: []int{20}, Owner: owner,
		}, {
			Path: "/system.slice", Dir: "/sys/fs/cgroup/system.slice", Usage: Usage{Max: 1 << 30}, Kills: 3,
			Daemons: []int{20},
		}}
		equal(t, "ReadStarvation", Starvation{
			Delays: []Delay{{
				PID: 20, Name: "containerd", Role: RoleRuntime, Ran: time.Millisecond,
				Waited: 900 * time.Millisecond, Queued: 1, Over: 2 * time.Second,
			}},
			WriteLimits: []WriteLimit{{
				PID: 20, Path: group, Device: "8:0", Disk: "sda", IOPS: 40, Bytes: 1 << 20,
				Dir: "/sys/fs/cgroup" + group, Owner: owner,
			}},
			MemoryLimits: limits,
		}, got)
		must(t, os.RemoveAll(n.Path("proc/20"))) // systemd starts it again in the group of the shim
		got, err = ReadStarvation(t.Context(), NewCgroupFS(n.Root), n.processes(), time.Second)
		must(t, err)
		limits[0].Daemons = nil
		equal(t, "without the daemon", Starvation{MemoryLimits: limits[:1]}, got)
	})
}
