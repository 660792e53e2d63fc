package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs/blockdevice"
)

const diskLine = " 259       0 nvme0n1 109676 10176 3657042 55697 25153 101974 15643616 48366 3 30428 105867 10981 35 7565456 1774 702 28\n"

func FuzzDiskBetween(f *testing.F) {
	f.Add(diskLine, strings.Replace(diskLine, " 25153 ", " 25159 ", 1))
	f.Add("254 0 vda 1 2 3 4 5 6 7 8 9 10 11\n", "254 0 vda 1 2 3 4 5 6 7 8 4294967295 0 0\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		n := newNode(t)
		n.write("proc/diskstats", before)
		a, errA := readDiskCounters(n.root)
		n.write("proc/diskstats", after)
		b, errB := readDiskCounters(n.root)
		if errA != nil || errB != nil {
			return
		}
		for name := range b {
			d, _ := diskBetween(a[name], b[name], time.Second)
			if !(d.Utilisation >= 0 && d.Utilisation <= 1) || d.WriteBytesPerSecond < 0 || d.WriteAwait < 0 || d.InFlight < 0 {
				t.Errorf("%+v", d)
			}
		}
	})
}

func TestDiskBetween(t *testing.T) {
	var base blockdevice.Diskstats
	base.MajorNumber, base.DeviceName = 8, "sda"
	base.ReadIOs, base.ReadSectors, base.ReadTicks = 10, 100, 1000
	base.WriteIOs, base.WriteSectors, base.WriteTicks = 20, 200, 2000
	base.IOsTotalTicks, base.WeightedIOTicks = 5000, 6000
	change := func(f func(*blockdevice.Diskstats)) blockdevice.Diskstats {
		d := base
		f(&d)
		return d
	}
	for _, tt := range []struct {
		name          string
		before, after blockdevice.Diskstats
		want          Disk
		ok            bool
	}{
		{"idle", base, base, Disk{Name: "sda", Over: 2 * time.Second}, true},
		{"at work", base, change(func(d *blockdevice.Diskstats) {
			d.ReadIOs, d.ReadSectors, d.ReadTicks = 14, 108, 1020
			d.WriteIOs, d.WriteSectors, d.WriteTicks = 30, 280, 2500
			d.IOsTotalTicks, d.WeightedIOTicks, d.IOsInProgress = 6000, 10000, 4
		}), Disk{
			Name: "sda", Over: 2 * time.Second, Utilisation: 0.5, ReadAwait: 5 * time.Millisecond, WriteAwait: 50 * time.Millisecond,
			ReadBytesPerSecond: 4 * 512, WriteBytesPerSecond: 40 * 512, InFlight: 4,
		}, true},
		{
			"times wrap", change(func(d *blockdevice.Diskstats) { d.IOsTotalTicks = 1<<32 - 500 }), change(func(d *blockdevice.Diskstats) { d.IOsTotalTicks = 500 }),
			Disk{Name: "sda", Over: 2 * time.Second, Utilisation: 0.5},
			true,
		},
		{
			"busier than time", base, change(func(d *blockdevice.Diskstats) { d.IOsTotalTicks += 2100 }),
			Disk{Name: "sda", Over: 2 * time.Second, Utilisation: 1},
			true,
		},
		{"replaced", base, change(func(d *blockdevice.Diskstats) { d.WriteIOs = 0 }), Disk{}, false},
		{"renamed", base, change(func(d *blockdevice.Diskstats) { d.MinorNumber = 16 }), Disk{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := diskBetween(tt.before, tt.after, 2*time.Second)
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
				t.Errorf("%v, want %v; %s", ok, tt.ok, diff)
			}
		})
	}
}

// TestReadDisks has a root on a partition, data on a volume of a device mapper over two disks.
func TestReadDisks(t *testing.T) {
	n := newNode(t)
	stat := func(more string) {
		var b strings.Builder
		for _, d := range []string{"259 0 nvme0n1", "259 2 nvme0n1p2", "253 0 dm-0", "8 0 sda", "8 16 sdb", "8 17 sdb1", "7 0 loop0", "8 32 sdc"} {
			b.WriteString(d + " 0 0 0 0 0 0 0 0 0 0 0\n")
		}
		n.write("proc/diskstats", strings.Replace(b.String(), "sdc 0", "sdc "+more, 1))
	}
	stat("1")
	for _, name := range []string{"nvme0n1", "nvme0n1p2", "dm-0", "sda", "sdb", "sdb1", "sdc"} {
		n.write("dev/"+name, "")
	}
	n.link("dev/mapper/vg0-data", "../dm-0")
	n.write("sys/devices/pci/block/nvme0n1/nvme0n1p2/partition", "2\n")
	n.write("sys/devices/pci/block/sdb/sdb1/partition", "1\n")
	n.write("sys/devices/virtual/block/dm-0/slaves/sda/dev", "8:0\n")
	n.link("sys/dev/block/259:2", "../../devices/pci/block/nvme0n1/nvme0n1p2")
	n.link("sys/dev/block/8:17", "../../devices/pci/block/sdb/sdb1")
	n.link("sys/dev/block/253:0", "../../devices/virtual/block/dm-0")
	b, err := os.ReadFile("testdata/node/mountinfo-kubelet")
	if err != nil {
		t.Fatal(err)
	}
	n.write("proc/1/mountinfo", string(b))
	n.write("data/containerd/x", "")
	n.write("home/x", "")
	n.write("var/lib/kubelet/x", "")
	n.link("var/lib/containerd", "/data/containerd")

	disks, err := ReadDisks(t.Context(), n.root, []Folder{
		{Path: "/var/lib/containerd", Role: "runtime"}, {Path: "/var/lib/kubelet", Role: "kubelet"}, {Path: "/none"}, {Path: "/mnt/nas/x"},
	}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, d := range disks {
		for _, f := range d.Folders {
			got[d.Name] = append(got[d.Name], f.Path)
		}
	}
	want := map[string][]string{
		"dm-0": {"/var/lib/containerd"}, "sda": {"/var/lib/containerd"}, "nvme0n1": {"/var/lib/kubelet"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if slices.ContainsFunc(disks, func(d Disk) bool { return d.Name == "sdc" || d.Name == "loop0" }) {
		t.Errorf("an idle disk without a folder is told of: %+v", disks)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadDisks(ctx, n.root, nil, time.Hour); err == nil {
		t.Error("half a look is no error")
	}
}

// TestReadWriters has a process that writes, one that is gone by the second look, one that writes next to nothing, and one
// that truncates what it wrote.
func TestReadWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		wrote := func(pid, bytes, cancelled int) {
			n.write(fmt.Sprintf("proc/%d/io", pid), fmt.Sprintf("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\n"+
				"write_bytes: %d\ncancelled_write_bytes: %d\n", bytes, cancelled))
		}
		for _, pid := range []int{7, 8, 9, 10} {
			n.process(pid, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -id "+idB)
			wrote(pid, 5e6, 0)
		}
		n.write("proc/7/cgroup", "0::/kubepods/burstable/pod11-22/"+idA+"\n")
		go func() {
			time.Sleep(time.Second)
			wrote(7, 25e6, 0)
			n.write("proc/8/io", "")
			wrote(9, 6e6, 0)
			wrote(10, 99e6, 98e6)
		}()
		got, err := ReadWriters(t.Context(), n.people(), 2*time.Second)
		want := []Writer{{PID: 7, Name: "containerd-shim", Owner: Owner{Role: RoleShim, ObjectID: idB, PodUID: "11-22"}, BytesPerSecond: 1e7}}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
	})
	if got, err := ReadWriters(t.Context(), newNode(t).people(), 0); err == nil {
		t.Errorf("of a kernel that does not count: %+v", got)
	}
}
