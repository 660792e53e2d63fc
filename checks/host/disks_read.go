package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ReadDisks looks at root/proc/diskstats twice and returns the devices that had something to do or that folders lie on.
// Partitions are part of their disk; a device mapper's device and the disks below it are all told of.
func ReadDisks(ctx context.Context, root string, folders []Folder, between time.Duration) ([]Disk, error) {
	began := time.Now()
	before, err := readDiskCounters(root)
	if err != nil {
		return nil, err
	}
	on, under := foldersOn(root, folders, before)
	if err := pause(ctx, between-time.Since(began)); err != nil {
		return nil, fmt.Errorf("looking at the disks a second time: %w", err)
	}
	over := time.Since(began)
	after, err := readDiskCounters(root)
	if err != nil {
		return nil, err
	}
	return compareDisks(before, after, over, on, func(d diskCounters) bool { return !isPartition(root, d.device) }), under
}

func readDiskCounters(root string) (map[string]diskCounters, error) {
	b, err := readLimited(filepath.Join(root, "proc/diskstats"), 1<<20)
	if err != nil {
		return nil, fmt.Errorf("reading what disks did: %w", err)
	}
	all, err := parseDisks(b)
	if err != nil {
		return nil, fmt.Errorf("reading what disks did: %w", err)
	}
	return all, nil
}

func deviceDir(root, device string) string { return filepath.Join(root, "sys/dev/block", device) }

func isPartition(root, device string) bool {
	_, err := os.Stat(filepath.Join(deviceDir(root, device), "partition"))
	return err == nil
}

// foldersOn says which folders lie on which disk, by the disk's name. Without a mount table none is known to.
func foldersOn(root string, folders []Folder, disks map[string]diskCounters) (map[string][]Folder, error) {
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
		device := m.device
		// btrfs, zfs and overlay have numbers that are no device's; btrfs names the device that it was mounted from.
		if strings.HasPrefix(device, "0:") && path.IsAbs(m.source) && !remote(m.kind) {
			source, _ := table.resolve(base, m.source)
			device = disks[path.Base(source)].device
		}
		for _, disk := range disksUnder(root, device, disks) {
			on[disk] = append(on[disk], f)
		}
	}
	return on, nil
}

// disksUnder returns the names of a device and of those that it is made of: the disk of a partition, the slaves of a device
// mapper or a RAID.
func disksUnder(root, device string, disks map[string]diskCounters) []string {
	const most = 32 // devices; also ends a circle, which sysfs has none of
	byDevice := make(map[string]string, len(disks))
	for name, d := range disks {
		byDevice[d.device] = name
	}
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
			ahead = append(ahead, disks[path.Base(path.Dir(link))].device)
			continue
		}
		if name, ok := byDevice[device]; ok {
			found = append(found, name)
		}
		for _, slave := range names(filepath.Join(deviceDir(root, device), "slaves")) {
			ahead = append(ahead, disks[slave].device)
		}
	}
	return found
}

// ReadWriters looks at what each process has written twice, and returns who wrote most. An error beside writers says that
// the numbers of some processes may not be read.
func ReadWriters(ctx context.Context, root string, between time.Duration) ([]Writer, error) {
	began := time.Now()
	before, _, err := readWritten(ctx, root)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, between-time.Since(began)); err != nil {
		return nil, fmt.Errorf("looking at who writes a second time: %w", err)
	}
	over := time.Since(began)
	after, denied, err := readWritten(ctx, root)
	if err != nil {
		return nil, err
	}
	top := topWriters(before, after, over)
	for i := range top {
		top[i].identify(root)
	}
	if denied > 0 {
		return top, fmt.Errorf("reading what processes wrote: no permission for %d of %d", denied, denied+len(after))
	}
	return top, nil
}

// readWritten returns what each process has written, and of how many that may not be read. One that is gone meanwhile is
// left out.
func readWritten(ctx context.Context, root string) (all map[int]written, denied int, err error) {
	proc := filepath.Join(root, "proc")
	dir, err := os.Open(proc)
	if err != nil {
		return nil, 0, fmt.Errorf("listing processes: %w", err)
	}
	dir.Close()
	all = map[int]written{}
	for _, name := range names(proc) {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, fmt.Errorf("reading what processes wrote: %w", err)
		}
		b, err := readLimited(filepath.Join(proc, name, "io"), 4<<10)
		if errors.Is(err, os.ErrPermission) {
			denied++
		}
		if w, bad := parseWritten(b); err == nil && bad == nil {
			all[pid] = w
		}
	}
	if len(all) == 0 && denied == 0 { // CONFIG_TASK_IO_ACCOUNTING
		return nil, 0, errors.New("reading what processes wrote: this kernel does not count it")
	}
	return all, denied, nil
}

// identify names a writer by its comm and its cgroup, which no lock of the process's can delay.
func (w *Writer) identify(root string) {
	dir := filepath.Join(root, "proc", strconv.Itoa(w.PID))
	comm, _ := readLimited(filepath.Join(dir, "comm"), 64)
	w.Name = strings.TrimSpace(string(comm))
	w.Role, _ = identify(w.Name, nil, "")
	b, _ := readLimited(filepath.Join(dir, "cgroup"), 64<<10)
	of := parseCgroup(b)
	w.ObjectID, w.PodUID = of.id, of.podUID
}
