package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// A Disk is a block device's work between two reads of /proc/diskstats.
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
		idle := d.ReadBytesPerSecond+d.WriteBytesPerSecond+d.Utilisation == 0 && d.InFlight == 0
		if ok && (!idle || len(d.Folders) > 0) && !isPartition(root, number(now)) {
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
	disks, err := blockdevice.NewFS(filepath.Join(root, "proc"), filepath.Join(root, "proc")) // nothing of /sys is read
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
	seconds := over.Seconds()
	reads, writes := float64(now.ReadIOs-before.ReadIOs), float64(now.WriteIOs-before.WriteIOs)
	await := func(now, before uint64, requests float64) time.Duration {
		if requests == 0 {
			return 0
		}
		return time.Duration(float64(uint32(now)-uint32(before)) * float64(time.Millisecond) / requests)
	}
	busy := time.Duration(uint32(now.IOsTotalTicks)-uint32(before.IOsTotalTicks)) * time.Millisecond
	return Disk{
		Name:                now.DeviceName,
		Utilisation:         min(1, busy.Seconds()/seconds),
		ReadAwait:           await(now.ReadTicks, before.ReadTicks, reads),
		WriteAwait:          await(now.WriteTicks, before.WriteTicks, writes),
		ReadBytesPerSecond:  float64(now.ReadSectors-before.ReadSectors) * procfs.SectorSize / seconds,
		WriteBytesPerSecond: float64(now.WriteSectors-before.WriteSectors) * procfs.SectorSize / seconds,
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
	table, err := readMounts(root)
	if err != nil {
		return nil, err
	}
	base := hostBase(root)
	on := map[string][]Folder{}
	for _, f := range folders {
		name, ok := table.resolve(base, f.Path)
		if !ok {
			continue
		}
		m, _ := table.of(name)
		for _, disk := range disksUnder(root, m.device, disks) {
			on[disk] = append(on[disk], f)
		}
	}
	return on, nil
}

// device returns the number of a device by its name; empty for none.
func (all diskCounters) device(name string) string {
	d, ok := all[name]
	if !ok {
		return ""
	}
	return number(d)
}

// disksUnder returns the names of a device and of those that it is made of: the disk of a partition, the slaves of a
// device mapper or a RAID.
func disksUnder(root, device string, disks diskCounters) []string {
	const most = 32 // devices; also ends a circle, which sysfs has none of
	var found []string
	seen := map[string]bool{"": true}
	for ahead := []string{device}; len(ahead) > 0 && len(seen) < most; ahead = ahead[1:] {
		device := ahead[0]
		if seen[device] {
			continue
		}
		seen[device] = true
		if isPartition(root, device) {
			// The link leads to .../block/sda/sda1.
			link, _ := os.Readlink(deviceDir(root, device))
			ahead = append(ahead, disks.device(path.Base(path.Dir(link))))
			continue
		}
		for name, d := range disks {
			if number(d) == device {
				found = append(found, name)
			}
		}
		for _, slave := range names(filepath.Join(deviceDir(root, device), "slaves")) {
			ahead = append(ahead, disks.device(slave))
		}
	}
	return found
}

// ReadWriters reads twice what each process has written, and returns who wrote most. With an error beside writers, the
// numbers of some processes may not be read.
func ReadWriters(ctx context.Context, people Population, between time.Duration) ([]Writer, error) {
	if people.all == nil {
		return nil, people.gap()
	}
	before, after, over, err := twice(ctx, between, func() (written, error) { return people.written(ctx) })
	if err != nil {
		return nil, err
	}
	writers := topWriters(before.bytes, after.bytes, over)
	pids := map[*Owner]int{}
	for i := range writers {
		writers[i].Name = people.all[writers[i].PID].comm
		pids[&writers[i].Owner] = writers[i].PID
	}
	err = people.setOwners(ctx, pids)
	if after.denied > 0 {
		err = errors.Join(err, fmt.Errorf("reading what processes wrote: no permission for %d of %d",
			after.denied, after.denied+len(after.bytes)))
	}
	return writers, err
}

// written is how many bytes each process has written to disks since it began, without those that were truncated away
// before, and the number of processes whose counters may not be read.
type written struct {
	bytes  map[int]uint64
	denied int
}

func (p Population) written(ctx context.Context) (written, error) {
	w := written{bytes: map[int]uint64{}}
	for pid := range p.all {
		if err := ctx.Err(); err != nil {
			return w, fmt.Errorf("reading what processes wrote: %w", err)
		}
		b, err := readSmall(p.dir(pid), "io")
		bytes, counted := keyed(b, "write_bytes:")
		canceled, _ := keyed(b, "cancelled_write_bytes:")
		switch {
		case errors.Is(err, os.ErrPermission):
			w.denied++
		case counted:
			w.bytes[pid] = bytes - min(bytes, canceled)
		}
	}
	if len(w.bytes) == 0 && w.denied == 0 { // CONFIG_TASK_IO_ACCOUNTING
		return w, errors.New("reading what processes wrote: this kernel does not count it")
	}
	return w, nil
}

// topWriters returns who wrote most between two reads, most first.
func topWriters(before, after map[int]uint64, over time.Duration) []Writer {
	var writers []Writer
	for pid, bytes := range after {
		old, ok := before[pid]
		if !ok || bytes < old || over <= 0 { // the number belongs to another process now
			continue
		}
		if rate := float64(bytes-old) / over.Seconds(); rate >= minWriting {
			writers = append(writers, Writer{PID: pid, BytesPerSecond: rate})
		}
	}
	return top(writers, maxWriters, func(a, b Writer) int {
		return cmp.Or(cmp.Compare(b.BytesPerSecond, a.BytesPerSecond), cmp.Compare(a.PID, b.PID))
	})
}
