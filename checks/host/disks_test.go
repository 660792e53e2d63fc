package host

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/procfs/blockdevice"
)

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
	}{
		{"idle", base, base, Disk{Name: "sda", Over: 2 * time.Second}},
		{"at work", base, change(func(d *blockdevice.Diskstats) {
			d.ReadIOs, d.ReadSectors, d.ReadTicks = 14, 108, 1020
			d.WriteIOs, d.WriteSectors, d.WriteTicks = 30, 280, 2500
			d.IOsTotalTicks, d.WeightedIOTicks, d.IOsInProgress = 6000, 10000, 4
		}), Disk{
			Name: "sda", Over: 2 * time.Second, Utilisation: 0.5, ReadAwait: 5 * time.Millisecond,
			WriteAwait: 50 * time.Millisecond, ReadBytesPerSecond: 4 * 512, WriteBytesPerSecond: 40 * 512, InFlight: 4,
		}},
		{"replaced", base, change(func(d *blockdevice.Diskstats) { d.WriteIOs = 0 }), Disk{}},
		{"renamed", base, change(func(d *blockdevice.Diskstats) { d.MinorNumber = 16 }), Disk{}},
	} {
		got, ok := diskBetween(tt.before, tt.after, 2*time.Second)
		equal(t, tt.name, tt.want, got)
		equal(t, tt.name, tt.want.Name != "", ok)
	}
}

// TestReadDisks has a root on a partition, data on a volume of a device mapper over two disks.
func TestReadDisks(t *testing.T) {
	n := newNode(t)
	var diskstats strings.Builder
	for _, d := range []string{
		"259 0 nvme0n1", "259 2 nvme0n1p2", "253 0 dm-0", "8 0 sda", "8 16 sdb", "8 17 sdb1", "7 0 loop0", "8 32 sdc",
	} {
		diskstats.WriteString(d + strings.Repeat(" 0", 11) + "\n")
	}
	n.write("proc/diskstats", diskstats.String(), "proc/1/mountinfo", fixture(t, "node/mountinfo-kubelet"),
		"sys/devices/pci/block/nvme0n1/nvme0n1p2/partition", "2\n", "sys/devices/pci/block/sdb/sdb1/partition", "1\n",
		"sys/devices/virtual/block/dm-0/slaves/sda/dev", "8:0\n", "data/containerd/x", "", "var/lib/kubelet/x", "")
	for name, target := range map[string]string{
		"259:2": "pci/block/nvme0n1/nvme0n1p2", "8:17": "pci/block/sdb/sdb1", "253:0": "virtual/block/dm-0",
	} {
		n.link("sys/dev/block/"+name, "../../devices/"+target)
	}
	n.link("var/lib/containerd", "/data/containerd")
	disks, err := ReadDisks(t.Context(), n.root, []Folder{
		{Path: "/var/lib/containerd"}, {Path: "/var/lib/kubelet"}, {Path: "/none"}, {Path: "/mnt/nas/x"},
	}, time.Millisecond)
	must(t, err)
	got := map[string][]Folder{} // without sdc and loop0, which are idle and have none
	for _, d := range disks {
		got[d.Name] = d.Folders
	}
	equal(t, "folders on disks", map[string][]Folder{
		"dm-0": {{Path: "/var/lib/containerd"}}, "sda": {{Path: "/var/lib/containerd"}},
		"nvme0n1": {{Path: "/var/lib/kubelet"}},
	}, got)
	_, err = ReadDisks(canceled(t), n.root, nil, time.Hour)
	failed(t, "one read alone", err, "canceled")
}

// TestReadWriters has a process that writes, one that is gone in the second read, one that writes next to nothing, and
// one that truncates what it wrote.
func TestReadWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		wrote := func(pid, bytes, canceled int) {
			n.write(procFile(pid, "io"), fmt.Sprintf("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\n"+
				"write_bytes: %d\ncancelled_write_bytes: %d\n", bytes, canceled))
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
		got, err := ReadWriters(t.Context(), n.processes(), 2*time.Second)
		must(t, err)
		owner := Owner{Role: RoleShim, ObjectID: idB, PodUID: "11-22"}
		equal(t, "ReadWriters", []Writer{{PID: 7, Name: "containerd-shim", Owner: owner, BytesPerSecond: 1e7}}, got)
	})
	_, err := ReadWriters(t.Context(), newNode(t).processes(), 0)
	failed(t, "of a kernel that does not count", err, "does not count")
}
