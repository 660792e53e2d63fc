package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Disk is a block device's work between two looks at /proc/diskstats.
type Disk struct {
	Name                string  // sda, nvme0n1, dm-0
	Utilisation         float64 // share of the time in which it had work to do, 0 to 1
	ReadAwait           time.Duration
	WriteAwait          time.Duration // mean time of one request, waiting included
	ReadsPerSecond      float64
	WritesPerSecond     float64
	ReadBytesPerSecond  float64
	WriteBytesPerSecond float64
	Queue               float64       // mean number of requests in flight
	InFlight            int           // at the second look
	Folders             []Folder      // that lie on it, through partitions and device mapper
	Over                time.Duration // between the looks
}

// A Writer is a process that wrote much between two looks at /proc/PID/io.
type Writer struct {
	PID            int
	Name           string
	Role           Role
	ObjectID       string // the container it belongs to, if any
	PodUID         string
	BytesPerSecond float64
}

// maxDisks bounds the devices that are told of: those under folders first, then the busiest.
const maxDisks = 64

// sector is the unit of diskstats, whatever the device's own is (Documentation/admin-guide/iostats.rst).
const sector = 512

// diskCounters is what is kept of a line of /proc/diskstats. Times are in milliseconds and wrap at 32 bits, the others do
// not wrap in practice.
type diskCounters struct {
	device, name          string // device is major:minor
	reads, writes         uint64 // completed
	readSectors           uint64
	writeSectors          uint64
	readTime, writeTime   uint32
	inFlight              int
	busyTime, waitingTime uint32 // with work to do; summed over the requests
}

// parseDiskLine parses a line of /proc/diskstats, of which newer kernels have more fields than these:
//
//	259 0 nvme0n1 109676 10176 3657042 55697 25153 101974 15643616 48366 0 30428 105867
func parseDiskLine(line string) (diskCounters, error) {
	f := strings.Fields(line)
	if len(f) < 14 {
		return diskCounters{}, fmt.Errorf("%d fields, want 14", len(f))
	}
	var bad error
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(f[i], 10, 64)
		if err != nil {
			bad = fmt.Errorf("field %d is %q", i+1, f[i])
		}
		return n
	}
	d := diskCounters{
		device: strconv.FormatUint(number(0), 10) + ":" + strconv.FormatUint(number(1), 10), name: f[2],
		reads: number(3), readSectors: number(5), readTime: uint32(number(6)),
		writes: number(7), writeSectors: number(9), writeTime: uint32(number(10)),
		busyTime: uint32(number(12)), waitingTime: uint32(number(13)),
	}
	// A sum over CPUs, which older kernels let come out below zero and print without a sign.
	d.inFlight = int(max(0, int32(number(11))))
	return d, bad
}

// parseDisks parses /proc/diskstats. A line that is not understood is left out.
func parseDisks(b []byte) (map[string]diskCounters, error) {
	all := map[string]diskCounters{}
	for line := range strings.Lines(string(b)) {
		if d, err := parseDiskLine(line); err == nil {
			all[d.name] = d
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no line was understood")
	}
	return all, nil
}

// between says what a device did between two looks; false when it was replaced by another of its name meanwhile.
func (d diskCounters) between(before diskCounters, over time.Duration) (Disk, bool) {
	if d.device != before.device || d.reads < before.reads || d.writes < before.writes ||
		d.readSectors < before.readSectors || d.writeSectors < before.writeSectors || over <= 0 {
		return Disk{}, false
	}
	seconds := over.Seconds()
	reads, writes := float64(d.reads-before.reads), float64(d.writes-before.writes)
	await := func(spent uint32, requests float64) time.Duration {
		if requests == 0 {
			return 0
		}
		return time.Duration(float64(spent) * float64(time.Millisecond) / requests)
	}
	share := func(spent uint32) float64 { return float64(spent) / (seconds * 1000) }
	return Disk{
		Name:                d.name,
		Utilisation:         min(1, share(d.busyTime-before.busyTime)),
		ReadAwait:           await(d.readTime-before.readTime, reads),
		WriteAwait:          await(d.writeTime-before.writeTime, writes),
		ReadsPerSecond:      reads / seconds,
		WritesPerSecond:     writes / seconds,
		ReadBytesPerSecond:  float64(d.readSectors-before.readSectors) * sector / seconds,
		WriteBytesPerSecond: float64(d.writeSectors-before.writeSectors) * sector / seconds,
		Queue:               share(d.waitingTime - before.waitingTime),
		InFlight:            d.inFlight,
		Over:                over,
	}, true
}

// compareDisks returns the disks that are of interest: those that were there in both looks, and that folders lie on or that
// had something to do. on names the folders by disk; whole says of which devices partitions are not told apart.
func compareDisks(before, after map[string]diskCounters, over time.Duration, on map[string][]Folder, whole func(diskCounters) bool) []Disk {
	var disks []Disk
	for name, c := range after {
		b, ok := before[name]
		if !ok {
			continue
		}
		d, ok := c.between(b, over)
		d.Folders = on[name]
		idle := d.ReadsPerSecond+d.WritesPerSecond+d.Utilisation == 0 && d.InFlight == 0
		if !ok || idle && len(d.Folders) == 0 || !whole(c) {
			continue
		}
		disks = append(disks, d)
	}
	slices.SortFunc(disks, func(a, b Disk) int {
		return cmp.Or(
			-cmp.Compare(min(1, len(a.Folders)), min(1, len(b.Folders))),
			-cmp.Compare(a.Utilisation, b.Utilisation),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return disks[:min(len(disks), maxDisks)]
}

// A written is what a process has written to disks since it began, in bytes.
type written struct {
	bytes     uint64
	cancelled uint64 // of them, truncated away before they were written
}

// parseWritten parses /proc/PID/io, of which the lines are such as
//
//	write_bytes: 323932160
//	cancelled_write_bytes: 0
func parseWritten(b []byte) (written, error) {
	var w written
	var seen bool
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ": ")
		to := &w.bytes
		switch key {
		case "write_bytes":
			seen = true
		case "cancelled_write_bytes":
			to = &w.cancelled
		default:
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return written{}, fmt.Errorf("line %q", key)
		}
		*to = n
	}
	if !seen {
		return written{}, errors.New("no line write_bytes")
	}
	return w, nil
}

// Of the writers, those that matter: few, and above what a log costs.
const (
	maxWriters = 5
	minWriting = 1e6 // bytes per second
)

// topWriters returns who wrote most between two looks, most first.
func topWriters(before, after map[int]written, over time.Duration) []Writer {
	var top []Writer
	for pid, a := range after {
		b, ok := before[pid]
		if !ok || a.bytes < b.bytes || over <= 0 { // the number belongs to another process now
			continue
		}
		wrote := a.bytes - b.bytes
		wrote -= min(wrote, a.cancelled-min(a.cancelled, b.cancelled))
		if rate := float64(wrote) / over.Seconds(); rate >= minWriting {
			top = append(top, Writer{PID: pid, BytesPerSecond: rate})
		}
	}
	slices.SortFunc(top, func(a, b Writer) int {
		return cmp.Or(-cmp.Compare(a.BytesPerSecond, b.BytesPerSecond), cmp.Compare(a.PID, b.PID))
	})
	return top[:min(len(top), maxWriters)]
}
