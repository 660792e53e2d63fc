package host

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const diskLine = " 259       0 nvme0n1 109676 10176 3657042 55697 25153 101974 15643616 48366 3 30428 105867 10981 35 7565456 1774 702 28\n"

func TestParseDiskLine(t *testing.T) {
	want := diskCounters{
		device: "259:0", name: "nvme0n1", reads: 109676, readSectors: 3657042, readTime: 55697,
		writes: 25153, writeSectors: 15643616, writeTime: 48366, inFlight: 3, busyTime: 30428, waitingTime: 105867,
	}
	below := want
	below.inFlight = 0
	for _, tt := range []struct {
		name, line string
		want       diskCounters
		err        string
	}{
		{"Linux 5.5", diskLine, want, ""},
		{"Linux 4.9", strings.Join(strings.Fields(diskLine)[:14], " "), want, ""},
		{"in flight below zero", strings.Replace(diskLine, " 3 ", " 4294967295 ", 1), below, ""},
		{"cut", "259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10", diskCounters{}, "13 fields"},
		{"no number", "259 0 nvme0n1 1 2 3 4 5 6 7 8 9 x 11", diskCounters{}, `field 13 is "x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseDiskLine(tt.line)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(diskCounters{})); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func FuzzParseDisks(f *testing.F) {
	f.Add(diskLine + "\n\n" + strings.Replace(diskLine, " 25153 ", " 25159 ", 1))
	f.Add("254 0 vda 1 2 3 4 5 6 7 8 9 10 11\n\n\n254 0 vda 1 2 3 4 5 6 7 8 4294967295 0 0\n")
	f.Fuzz(func(t *testing.T, in string) {
		before, after, _ := strings.Cut(in, "\n\n")
		a, errA := parseDisks([]byte(before))
		b, errB := parseDisks([]byte(after))
		if errA != nil || errB != nil {
			return
		}
		for _, d := range compareDisks(a, b, time.Second, nil, func(diskCounters) bool { return true }) {
			if !(d.Utilisation >= 0 && d.Utilisation <= 1) || d.Queue < 0 || d.WritesPerSecond < 0 || d.WriteAwait < 0 || d.InFlight < 0 {
				t.Errorf("%+v", d)
			}
		}
	})
}

func TestDiskBetween(t *testing.T) {
	b, err := os.ReadFile("testdata/node/diskstats")
	if err != nil {
		t.Fatal(err)
	}
	if disks, err := parseDisks(b); err != nil || len(disks) != strings.Count(string(b), "\n") || disks["vda"].device != "254:0" {
		t.Errorf("a real file is %+v, %v", disks, err)
	}
	base := diskCounters{
		device: "8:0", name: "sda", reads: 10, readSectors: 100, readTime: 1000, writes: 20, writeSectors: 200,
		writeTime: 2000, busyTime: 5000, waitingTime: 6000,
	}
	change := func(f func(*diskCounters)) diskCounters {
		d := base
		f(&d)
		return d
	}
	for _, tt := range []struct {
		name          string
		before, after diskCounters
		want          Disk
		ok            bool
	}{
		{"idle", base, base, Disk{Name: "sda", Over: 2 * time.Second}, true},
		{"at work", base, change(func(d *diskCounters) {
			d.reads, d.readSectors, d.readTime = 14, 108, 1020
			d.writes, d.writeSectors, d.writeTime = 30, 280, 2500
			d.busyTime, d.waitingTime, d.inFlight = 6000, 10000, 4
		}), Disk{
			Name: "sda", Over: 2 * time.Second, Utilisation: 0.5, ReadAwait: 5 * time.Millisecond, WriteAwait: 50 * time.Millisecond,
			ReadsPerSecond: 2, WritesPerSecond: 5, ReadBytesPerSecond: 4 * 512, WriteBytesPerSecond: 40 * 512, Queue: 2, InFlight: 4,
		}, true},
		{
			"times wrap", change(func(d *diskCounters) { d.busyTime = 1<<32 - 500 }), change(func(d *diskCounters) { d.busyTime = 500 }),
			Disk{Name: "sda", Over: 2 * time.Second, Utilisation: 0.5},
			true,
		},
		{
			"busier than time", base, change(func(d *diskCounters) { d.busyTime += 2100 }),
			Disk{Name: "sda", Over: 2 * time.Second, Utilisation: 1},
			true,
		},
		{"replaced", base, change(func(d *diskCounters) { d.writes = 0 }), Disk{}, false},
		{"renamed", base, change(func(d *diskCounters) { d.device = "8:16" }), Disk{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tt.after.between(tt.before, 2*time.Second)
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
				t.Errorf("%v, want %v; %s", ok, tt.ok, diff)
			}
		})
	}
}

// TestReadDisks has a root on a partition, data on a volume of a device mapper over two disks, and btrfs.
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
		{Path: "/var/lib/containerd", Role: "runtime"}, {Path: "/var/lib/kubelet", Role: "kubelet"}, {Path: "/home"}, {Path: "/none"}, {Path: "/mnt/nas/x"},
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
		"dm-0": {"/var/lib/containerd"}, "sda": {"/var/lib/containerd"}, "nvme0n1": {"/var/lib/kubelet"}, "sdb": {"/home"},
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

func TestParseWritten(t *testing.T) {
	const io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"
	got, err := parseWritten([]byte(io))
	if got != (written{6, 7}) || err != nil {
		t.Errorf("parseWritten = %+v, %v", got, err)
	}
	for _, bad := range []string{"", "write_bytes: x\n", "cancelled_write_bytes: 7\n"} {
		if got, err := parseWritten([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func TestTopWriters(t *testing.T) {
	const mb = 1e6
	before := map[int]written{1: {bytes: 0}, 2: {bytes: 5 * mb}, 3: {}, 4: {}, 5: {}, 6: {}, 7: {}, 8: {bytes: 9 * mb}, 9: {}}
	after := map[int]written{
		1: {bytes: 2 * mb}, 2: {bytes: 25 * mb}, 3: {bytes: 2*mb - 2}, 4: {bytes: 4 * mb}, 5: {bytes: 6 * mb}, 6: {bytes: 8 * mb},
		7: {bytes: 10 * mb}, 8: {bytes: 1}, 9: {bytes: 99 * mb, cancelled: 98 * mb}, 10: {bytes: 99 * mb},
	}
	want := []Writer{
		{PID: 2, BytesPerSecond: 10 * mb},
		{PID: 7, BytesPerSecond: 5 * mb},
		{PID: 6, BytesPerSecond: 4 * mb},
		{PID: 5, BytesPerSecond: 3 * mb},
		{PID: 4, BytesPerSecond: 2 * mb},
	}
	if diff := cmp.Diff(want, topWriters(before, after, 2*time.Second)); diff != "" {
		t.Error(diff)
	}
}

func TestWriterIdentify(t *testing.T) {
	n := newNode(t)
	n.write("proc/7/comm", "containerd-shim\n")
	n.write("proc/7/cgroup", "0::/kubepods/burstable/pod11-22/"+idA+"\n")
	w := Writer{PID: 7}
	w.identify(n.root)
	if diff := cmp.Diff(Writer{PID: 7, Name: "containerd-shim", Role: RoleShim, ObjectID: idA, PodUID: "11-22"}, w); diff != "" {
		t.Error(diff)
	}
}
