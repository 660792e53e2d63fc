package host

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadCgroupsVersion2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.write("proc/1/mountinfo", mountinfoV2)
		n.process(30, 1, "kubelet", 'S', "kubelet")
		n.write("proc/30/cgroup", "0::/system.slice/kubelet.service\n")
		cg := "sys/fs/cgroup/"
		n.write(cg+"cgroup.stat", "nr_descendants 612\nnr_subsys_cpu 600\nnr_dying_descendants 7\n")
		throttled := func(dir, periods, throttled, usec string) {
			n.write(cg+dir+"/cpu.stat", "usage_usec 9\nnr_periods "+periods+"\nnr_throttled "+throttled+"\nthrottled_usec "+usec+"\n")
		}
		n.write(cg+"system.slice/cpu.max", "150000 100000\n")
		throttled("system.slice", "100", "10", "5000")
		n.write(cg+"system.slice/kubelet.service/cpu.max", "max 100000\n")
		throttled("system.slice/kubelet.service", "0", "0", "0")
		frozen := func(dir, events, self, threads string) {
			n.write(cg+dir+"/cgroup.events", "populated 1\nfrozen "+events+"\n")
			n.write(cg+dir+"/cgroup.freeze", self+"\n")
			n.write(cg+dir+"/cgroup.threads", threads)
		}
		frozen("kubepods", "0", "0", "")
		frozen("kubepods/pod7", "1", "1", "")
		frozen("kubepods/pod7/"+idA, "1", "0", "71\n72\n")
		frozen("kubepods/pod7/"+idB, "1", "0", "")
		frozen("kubepods/pod8", "0", "1", "81\n")
		go func() {
			time.Sleep(time.Second)
			throttled("system.slice", "110", "19", "805000")
		}()
		got, err := ReadCgroups(t.Context(), n.root, n.people(), 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want := Cgroups{
			Version: 2, Total: 612, Dying: 7,
			Frozen: []FrozenCgroup{
				{Path: "/kubepods/pod7", Self: true, Owner: Owner{PodUID: "7"}},
				{Path: "/kubepods/pod8", Self: true, Freezing: true, Tasks: 1, Owner: Owner{PodUID: "8"}},
				{Path: "/kubepods/pod7/" + idA, Tasks: 2, Owner: Owner{ObjectID: idA, PodUID: "7"}},
			},
			Throttled: []Throttling{
				{Path: "/system.slice", Quota: 1.5, Periods: 10, Throttled: 9, Lost: 800 * time.Millisecond, Over: 2 * time.Second},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ReadCgroups (-want +got):\n%s", diff)
		}
	})
}

func TestReadCgroupsHybrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.write("proc/1/mountinfo", string(fixture(t, "mountinfo-hybrid")))
		n.write("proc/cgroups", string(fixture(t, "cgroups")))
		n.process(20, 1, "containerd", 'S', "containerd")
		n.write("proc/20/cgroup", "1:cpu:/system.slice/containerd.service\n0::/\n")
		cpu := "sys/fs/cgroup/cpu/system.slice/containerd.service/"
		n.write(cpu+"cpu.stat", "nr_periods 5\nnr_throttled 1\nthrottled_time 1000000\n")
		n.write(cpu+"cpu.cfs_quota_us", "20000\n")
		n.write(cpu+"cpu.cfs_period_us", "100000\n")
		freezer := "sys/fs/cgroup/freezer/kubepods/burstable/pod7/" + idA + "/"
		n.write(freezer+"freezer.state", "FROZEN\n")
		n.write(freezer+"freezer.self_freezing", "1\n")
		n.write(freezer+"tasks", "71\n72\n73\n")
		n.write("sys/fs/cgroup/freezer/kubepods/freezer.state", "THAWED\n")
		n.write("sys/fs/cgroup/unified/odd/cgroup.events", "populated 0\nfrozen 1\n")
		n.write("sys/fs/cgroup/unified/odd/cgroup.freeze", "1\n")
		got, err := ReadCgroups(t.Context(), n.root, n.people(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want := Cgroups{
			Version: 1, Total: 31, Dying: -1,
			ByController: map[string]int{"cpuset": 1, "cpu": 1, "cpuacct": 1, "blkio": 1, "memory": 31, "devices": 1, "freezer": 1, "pids": 1},
			Frozen: []FrozenCgroup{
				{Path: "/kubepods/burstable/pod7/" + idA, Self: true, Tasks: 3, Owner: Owner{ObjectID: idA, PodUID: "7"}},
				{Path: "/odd", Self: true},
			},
			Throttled: []Throttling{{
				Path: "/system.slice/containerd.service", Quota: 0.2, Over: time.Second,
				Owner: Owner{Role: RoleRuntime, Unit: "containerd.service"},
			}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ReadCgroups (-want +got):\n%s", diff)
		}
	})
}

func TestParseCPU(t *testing.T) {
	for in, want := range map[string]float64{
		"max 100000\n": 0, "50000 100000\n": 0.5, "200000\n 100000\n ": 2, "": 0, "5 0": 0, "-1\n 100000\n": 0,
	} {
		if got := cores(in); got != want {
			t.Errorf("cores(%q) = %v, want %v", in, got, want)
		}
	}
	if got, want := parseCPUStat([]byte("nr_periods 5\nnr_throttled 1\nthrottled_time 1000000\n")), (quota{0, 5, 1, time.Millisecond}); got != want {
		t.Errorf("version 1: %+v, want %+v", got, want)
	}
	if got, want := parseCPUStat([]byte("nr_periods 5\nnr_throttled 1\nthrottled_usec 1000000\n")), (quota{0, 5, 1, time.Second}); got != want {
		t.Errorf("version 2: %+v, want %+v", got, want)
	}
}

func FuzzParseCPU(f *testing.F) {
	f.Add([]byte("nr_periods 5\nnr_throttled 1\nthrottled_usec 18446744073709551615\n"))
	f.Add([]byte("max 100000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, c := parseCPUStat(b), cores(string(b)); q.lost < 0 || c < 0 {
			t.Errorf("of %q: %+v, %v cores", b, q, c)
		}
	})
}
