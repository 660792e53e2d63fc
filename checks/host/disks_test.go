package host

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadDisks has a root on a partition, data on a volume of a device mapper over two disks of which one is at work,
// and disks that others of their name or number have replaced.
func TestReadDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		diskstats := func(busy ...string) {
			var text strings.Builder
			for _, d := range append([]string{
				"259 0 nvme0n1", "259 2 nvme0n1p2", "253 0 dm-0", "8 16 sdb", "8 17 sdb1", "7 0 loop0",
			}, busy...) {
				text.WriteString(d + strings.Repeat(" 0", 14-len(strings.Fields(d))) + "\n")
			}
			n.Write("proc/diskstats", text.String())
		}
		diskstats("8 0 sda 10 0 100 1000 20 0 200 2000 0 5000 6000", "8 32 sdc 7 0 7 7 7", "8 48 sdd")
		n.Write("proc/1/mountinfo", fixture(t, "node/mountinfo-kubelet"), "data/containerd/x", "", "var/lib/kubelet/x", "",
			"sys/devices/pci/block/nvme0n1/nvme0n1p2/partition", "2\n", "sys/devices/pci/block/sdb/sdb1/partition", "1\n",
			"sys/devices/virtual/block/dm-0/slaves/sda/dev", "8:0\n")
		for name, target := range map[string]string{
			"259:2": "pci/block/nvme0n1/nvme0n1p2", "8:17": "pci/block/sdb/sdb1", "253:0": "virtual/block/dm-0",
		} {
			n.Link("sys/dev/block/"+name, "../../devices/"+target)
		}
		n.Link("var/lib/containerd", "/data/containerd")
		time.AfterFunc(time.Second, func() {
			diskstats("8 0 sda 14 0 108 1020 30 0 280 2500 4 6000 10000", "8 32 sdc 9 0 9 9 3", "8 64 sdd 7 0 7 7 7")
		})
		disks, err := ReadDisks(t.Context(), n.Root, []Folder{
			{Path: "/var/lib/containerd"}, {Path: "/var/lib/kubelet"}, {Path: "/none"}, {Path: "/mnt/nas/x"},
		}, 2*time.Second)
		must(t, err)
		data := []Folder{{Path: "/var/lib/containerd"}}
		equal(t, "ReadDisks", []Disk{ // without loop0, which is idle and has no folder
			{
				Name: "sda", Over: 2 * time.Second, Utilisation: 0.5, ReadAwait: 5 * time.Millisecond, Folders: data,
				WriteAwait: 50 * time.Millisecond, ReadBytesPerSecond: 4 * 512, WriteBytesPerSecond: 40 * 512, InFlight: 4,
			},
			{Name: "dm-0", Over: 2 * time.Second, Folders: data},
			{Name: "nvme0n1", Over: 2 * time.Second, Folders: []Folder{{Path: "/var/lib/kubelet"}}},
		}, disks)
	})
}

// TestReadWriters has a process that writes, one that is gone in the second read, one that writes next to nothing, and
// one that truncates what it wrote.
func TestReadWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		wrote := func(pid, bytes, canceled int) {
			n.Write(procFile(pid, "io"), fmt.Sprintf("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\n"+
				"write_bytes: %d\ncancelled_write_bytes: %d\n", bytes, canceled))
		}
		for _, pid := range []int{7, 8, 9, 10} {
			n.process(pid, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -id "+idB)
			wrote(pid, 5e6, 0)
		}
		n.Write("proc/7/cgroup", "0::/kubepods/burstable/pod11-22/"+idA+"\n")
		time.AfterFunc(time.Second, func() {
			wrote(7, 25e6, 0)
			n.Write("proc/8/io", "")
			wrote(9, 6e6, 0)
			wrote(10, 99e6, 98e6)
		})
		got, err := ReadWriters(t.Context(), n.processes(), 2*time.Second)
		must(t, err)
		owner := Owner{Role: RoleShim, ObjectID: idB, PodUID: "11-22"}
		equal(t, "ReadWriters", []Writer{{PID: 7, Name: "containerd-shim", Owner: owner, BytesPerSecond: 1e7}}, got)
	})
	_, err := ReadWriters(t.Context(), newNode(t).processes(), 0)
	failed(t, "of a kernel that does not count", err, "does not count")
}
