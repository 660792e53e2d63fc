package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"
)

const (
	maxDisks   = 64  // devices that are returned: those under folders first, then the busiest
	maxWriters = 5   // processes that are returned
	minWriting = 1e6 // bytes per second, above what a log costs
)

// A Disk is the work of a block device between two reads of /proc/diskstats.
type Disk struct {
	Name                string  // sda, nvme0n1, dm-0
	Utilisation         float64 // share of the time in which it had work to do, 0 to 1
	ReadAwait           time.Duration
	WriteAwait          time.Duration // mean time of one request, waiting included
	ReadBytesPerSecond  float64
	WriteBytesPerSecond float64
	InFlight            int           // at the second read
	Folders             []Folder      // that lie on it, through partitions and device mapper
	Over                time.Duration // between the reads
}

// A Writer is a process that wrote much between two reads of /proc/PID/io.
type Writer struct {
	PID  int
	Name string
	Owner
	BytesPerSecond float64
}

// diskCounters are the devices of /proc/diskstats by name. Times are in milliseconds, and wrap at 32 bits.
type diskCounters map[string]blockdevice.Diskstats

// number is a device's major:minor.
func number(d blockdevice.Diskstats) string {
	return fmt.Sprintf("%d:%d", d.MajorNumber, d.MinorNumber)
}

// ReadDisks reads root/proc/diskstats twice and returns the devices that had something to do or that folders lie on.
// Partitions are part of their disk; a device mapper's device and the disks below it are all returned. An error beside
// disks is why it is not known which folders lie on them.
func ReadDisks(ctx context.Context, root string, folders []Folder, between time.Duration) ([]Disk, error) {
	before, after, over, err := twice(ctx, between, func() (diskCounters, error) { return readDiskCounters(root) })
	if err != nil {
		return nil, err
	}
	on, under := foldersOn(root, folders, before)
	var disks []Disk
	for name, now := range after {
		d, ok := diskBetween(before[name], now, over)
		d.Folders = on[name]
		busy := d.ReadBytesPerSecond+d.WriteBytesPerSecond+d.Utilisation > 0 || d.InFlight > 0
		if ok && (busy || len(d.Folders) > 0) && !isPartition(root, number(now)) {
			disks = append(disks, d)
		}
	}
	return top(disks, maxDisks, func(a, b Disk) int {
		return cmp.Or(
			cmp.Compare(min(1, len(b.Folders)), min(1, len(a.Folders))),
			cmp.Compare(b.Utilisation, a.Utilisation), cmp.Compare(a.Name, b.Name),
		)
	}), under
}

func readDiskCounters(root string) (diskCounters, error) {
	proc := filepath.Join(root, "proc")
	disks, err := blockdevice.NewFS(proc, proc) // nothing of /sys is read
	var list []blockdevice.Diskstats
	if err == nil {
		list, err = disks.ProcDiskstats()
	}
	if err == nil && len(list) == 0 {
		err = errors.New("there are none")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the counters of disks: %w", err)
	}
	all := diskCounters{}
	for _, d := range list {
		all[d.DeviceName] = d
	}
	return all, nil
}

// diskBetween returns what a device did between two reads; false when it was replaced by another of its name meanwhile.
func diskBetween(before, now blockdevice.Diskstats, over time.Duration) (Disk, bool) {
	if number(before) != number(now) || now.ReadIOs < before.ReadIOs || now.WriteIOs < before.WriteIOs ||
		now.ReadSectors < before.ReadSectors || now.WriteSectors < before.WriteSectors || over <= 0 {
		return Disk{}, false
	}
	ticks := func(now, before uint64) time.Duration {
		return time.Duration(uint32(now)-uint32(before)) * time.Millisecond
	}
	reads, writes := time.Duration(now.ReadIOs-before.ReadIOs), time.Duration(now.WriteIOs-before.WriteIOs)
	rate := func(sectors uint64) float64 { return float64(sectors) * procfs.SectorSize / over.Seconds() }
	return Disk{
		Name:                now.DeviceName,
		Utilisation:         min(1, ticks(now.IOsTotalTicks, before.IOsTotalTicks).Seconds()/over.Seconds()),
		ReadAwait:           ticks(now.ReadTicks, before.ReadTicks) / max(1, reads),
		WriteAwait:          ticks(now.WriteTicks, before.WriteTicks) / max(1, writes),
		ReadBytesPerSecond:  rate(now.ReadSectors - before.ReadSectors),
		WriteBytesPerSecond: rate(now.WriteSectors - before.WriteSectors),
		// A sum over CPUs, which older kernels let come out below zero and print without a sign.
		InFlight: int(max(0, int32(now.IOsInProgress))),
		Over:     over,
	}, true
}

func deviceDir(root, device string) string { return filepath.Join(root, "sys/dev/block", device) }

func isPartition(root, device string) bool {
	_, err := os.Stat(filepath.Join(deviceDir(root, device), "partition"))
	return err == nil
}

// foldersOn returns the folders that lie on each disk, by the disk's name.
func foldersOn(root string, folders []Folder, disks diskCounters) (map[string][]Folder, error) {
	table, err := readMounts(root, "")
	if err != nil {
		return nil, err
	}
	on := map[string][]Folder{}
	for _, f := range folders {
		m, ok := table.under(hostBase(root), f.Path)
		if !ok {
			continue
		}
		for disk := range disks.below(root, m.device) {
			on[disk] = append(on[disk], f)
		}
	}
	return on, nil
}

// below returns the names of a device and of those that it is made of: the disk of a partition, the slaves of a device
// mapper or a RAID.
func (all diskCounters) below(root, device string) map[string]bool {
	if isPartition(root, device) {
		link, _ := os.Readlink(deviceDir(root, device)) // to .../block/sda/sda1
		device = number(all[path.Base(path.Dir(link))])
	}
	found := map[string]bool{}
	for name, d := range all {
		if number(d) != device {
			continue
		}
		found[name] = true
		for _, slave := range names(filepath.Join(deviceDir(root, device), "slaves")) {
			maps.Copy(found, all.below(root, number(all[slave])))
		}
	}
	return found
}

// ReadWriters reads twice how much each process has written, and returns those that wrote most. With an error beside
// writers, the numbers of some processes may not be read.
func ReadWriters(ctx context.Context, processes Population, between time.Duration) ([]Writer, error) {
	if processes.all == nil {
		return nil, processes.gap()
	}
	denied := 0
	before, after, over, err := twice(ctx, between, func() (written map[int]uint64, err error) {
		written, denied, err = processes.written(ctx)
		return written, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading what processes wrote: %w", err)
	}
	var writers []Writer
	for pid, bytes := range after {
		old, ok := before[pid]
		rate := float64(bytes-old) / over.Seconds()
		if ok && bytes >= old && rate >= minWriting { // else the number belongs to another process now
			writers = append(writers, Writer{PID: pid, Name: processes.all[pid].comm, BytesPerSecond: rate})
		}
	}
	writers = top(writers, maxWriters, func(a, b Writer) int {
		return cmp.Or(cmp.Compare(b.BytesPerSecond, a.BytesPerSecond), a.PID-b.PID)
	})
	pids := map[*Owner]int{}
	for i := range writers {
		pids[&writers[i].Owner] = writers[i].PID
	}
	err = processes.setOwners(ctx, pids)
	if denied > 0 {
		err = errors.Join(err, fmt.Errorf("reading what processes wrote: no permission for %d of %d",
			denied, denied+len(after)))
	}
	return writers, err
}

// written returns how many bytes each process has written to disks since it began, without those that were truncated
// away before, and the number of processes whose counters may not be read.
func (p Population) written(ctx context.Context) (written map[int]uint64, denied int, err error) {
	written = map[int]uint64{}
	for pid := range p.all {
		text, err := readSmall(p.dir(pid), "io")
		bytes, counted := numberAfter(text, "write_bytes:")
		canceled, _ := numberAfter(text, "cancelled_write_bytes:")
		switch {
		case errors.Is(err, os.ErrPermission):
			denied++
		case counted:
			written[pid] = bytes - min(bytes, canceled)
		}
	}
	if len(written) == 0 && denied == 0 { // CONFIG_TASK_IO_ACCOUNTING
		err = errors.New("this kernel does not count it")
	}
	return written, denied, cmp.Or(ctx.Err(), err)
}
