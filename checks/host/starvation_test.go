package host

import (
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadStarvation checks how long threads are seen to wait for a CPU, and the limits of writes, in both versions of
// control groups. Only version 2 has who waits for memory.
func TestReadStarvation(t *testing.T) {
	for name, tt := range map[string]struct {
		node        func(testing.TB) *node
		cgroup      string
		dir         string // of the control groups
		file        [2]string
		iops, bytes uint64
		limits      []MemoryLimit
	}{
		"version 2": {
			newNodeV2, "0::/system.slice/containerd.service\n", "",
			[2]string{"io.max", "8:0 rbps=max wbps=1048576 riops=max wiops=40\n"},
			40, 1 << 20,
			[]MemoryLimit{{
				Path: "/system.slice/containerd.service", Dir: "/sys/fs/cgroup/system.slice/containerd.service",
				Usage: Usage{Current: 7 << 20}, High: 6 << 20, Kills: 2, Older: true, Full: Averages{92, 40, 9}, Daemons: []int{20},
				Owner: Owner{Role: RoleRuntime, Unit: "containerd.service"},
			}, {
				Path: "/system.slice", Dir: "/sys/fs/cgroup/system.slice", Usage: Usage{Max: 1 << 30}, Kills: 3,
				Daemons: []int{20},
			}},
		},
		"version 1": {
			func(t testing.TB) *node {
				n := newNode(t)
				n.write("proc/1/mountinfo", fixture(t, "mountinfo-hybrid"))
				return n
			}, "1:blkio:/system.slice/containerd.service\n0::/\n", "/blkio",
			[2]string{"blkio.throttle.write_iops_device", "8:0 40\n"},
			40, 0, nil,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := tt.node(t)
			n.process(10, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -namespace k8s.io -id s -address a.sock")
			n.process(20, 1, "containerd", 'S', "containerd")
			must(t, os.Symlink("../../devices/virtual/block/sda", n.path("sys/dev/block/8:0")))
			const group = "/system.slice/containerd.service"
			n.write("proc/10/cgroup", tt.cgroup, "proc/20/cgroup", tt.cgroup, cgroupRoot+tt.dir+group+"/"+tt.file[0], tt.file[1])
			for file, text := range map[string]string{
				group + "/memory.high": "6291456\n", group + "/memory.max": "max\n",
				group + "/memory.current": "7340032\n", group + "/memory.events": "high 1079\noom 2\noom_kill 2\n",
				group + "/cgroup.procs": "10\n20\n",
				group + "/memory.pressure": "some avg10=93.00 avg60=41.00 avg300=9.50 total=5\n" +
					"full avg10=92.00 avg60=40.00 avg300=9.00 total=2\n",
				"/system.slice/memory.max": "1073741824\n", "/system.slice/memory.events": "oom_kill 3\n",
			} {
				n.write(cgroupRoot+tt.dir+file, text)
			}
			thread := func(tid int, state byte, schedstat string) {
				dir := procFile(20, "task/"+string(rune('0'+tid)))
				st := stat{pid: tid, comm: "containerd", state: state}
				n.write(dir+"/stat", statLine(st), dir+"/schedstat", schedstat)
			}
			thread(1, 'S', "5000000 7000000 3\n")
			thread(2, 'R', "9000000 0 1\n")
			processes := n.processes()
			go func() {
				time.Sleep(time.Second)
				thread(1, 'S', "6000000 907000000 4\n")
			}()
			got, err := ReadStarvation(t.Context(), NewCgroupFS(n.root), processes, 2*time.Second)
			must(t, err)
			equal(t, name, Starvation{
				Delays: []Delay{{
					PID: 20, Name: "containerd", Role: RoleRuntime, Ran: time.Millisecond,
					Waited: 900 * time.Millisecond, Queued: 1, Over: 2 * time.Second,
				}},
				WriteLimits: []WriteLimit{{
					PID: 20, Path: group, Device: "8:0", Disk: "sda", IOPS: tt.iops, Bytes: tt.bytes,
					Dir:   "/sys/fs/cgroup" + tt.dir + group,
					Owner: Owner{Role: RoleRuntime, Unit: "containerd.service"},
				}},
				MemoryLimits: tt.limits,
			}, got)
			must(t, os.RemoveAll(n.path("proc/20"))) // systemd starts it again in the group of the shim
			got, err = ReadStarvation(t.Context(), NewCgroupFS(n.root), n.processes(), time.Second)
			must(t, err)
			for i := range tt.limits {
				tt.limits[i].Daemons = nil
			}
			equal(t, name, Starvation{MemoryLimits: tt.limits[:min(len(tt.limits), 1)]}, got)
		})
	}
}
