package host

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Starvation is what keeps the runtime and the kubelet from getting on though nothing hangs: they wait for a CPU, or
// their control group may write hardly anything.
type Starvation struct {
	Delays      []Delay
	WriteLimits []WriteLimit
}

// A Delay is how long the threads of a daemon ran and waited for a CPU between two reads.
type Delay struct {
	PID    int
	Name   string
	Role   Role
	Ran    time.Duration // of all threads, as is Waited
	Waited time.Duration
	Groups []string // its control group of the CPU controller, and those above it
	Queued int      // threads that were ready to run in both reads and did not run in between
	Over   time.Duration
}

// A WriteLimit is what the control group of a daemon, or one above it, may write to a device (blkio.throttle of version
// 1, io.max of version 2).
type WriteLimit struct {
	PID    int    // of the daemon
	Path   string // of the group
	Dir    string // the folder of its files on the host
	Device string // major:minor
	IOPS   uint64 // writes a second; 0 for no limit
	Bytes  uint64 // a second; 0 for no limit
	Owner         // of the group; the role is the daemon's
}

// ReadStarvation reads twice how long the threads of the runtime and the kubelet wait for a CPU, and their limits of
// writes. With an error there may be a part of it.
func ReadStarvation(
	ctx context.Context, root string, people Population, between time.Duration,
) (Starvation, error) {
	return within(ctx, func(at *position) (Starvation, error) {
		var s Starvation
		before, after, over, err := twice(ctx, between, func() (map[string]schedule, error) {
			return people.schedules(), nil
		})
		all, e := readHierarchies(root)
		if err == nil {
			s.Delays = people.delays(before, after, over)
		}
		if cpu, none := all.of("cpu"); none == nil {
			for i := range s.Delays {
				s.Delays[i].Groups = people.groupsOf(at, cpu, "cpu", s.Delays[i].PID)
			}
		}
		s.WriteLimits = people.writeLimits(at, all)
		return s, errors.Join(people.gap(), err, e)
	})
}

// A schedule is what /proc/PID/task/TID/schedstat holds (Documentation/scheduler/sched-stats.rst): the kernel counts a
// wait when it ends.
type schedule struct {
	ran, waited time.Duration
	times       uint64 // that it was given a CPU
	ready       bool   // to run
}

// schedules reads the threads of the daemons, by their folders.
func (p Population) schedules() map[string]schedule {
	all := map[string]schedule{}
	for _, daemon := range p.daemons() {
		for _, thread := range p.threads(daemon.PID) {
			text, err := readSmall(thread, "schedstat")
			f := strings.Fields(text)
			if err != nil || len(f) != 3 {
				continue
			}
			var n [3]uint64
			for i := range n {
				n[i], _ = strconv.ParseUint(f[i], 10, 63) // the kernel's numbers
			}
			st, err := readStat(thread)
			all[thread] = schedule{time.Duration(n[0]), time.Duration(n[1]), n[2], err == nil && st.state == 'R'}
		}
	}
	return all
}

// delays sums up what became of each daemon's threads.
func (p Population) delays(before, after map[string]schedule, over time.Duration) []Delay {
	var list []Delay
	for _, daemon := range p.daemons() {
		d := Delay{PID: daemon.PID, Name: daemon.Name, Role: daemon.Role, Over: over}
		for thread, now := range after {
			old, ok := before[thread]
			if !ok || !strings.HasPrefix(thread, filepath.Join(p.dir(daemon.PID), "task")+"/") {
				continue
			}
			d.Ran += max(0, now.ran-old.ran)
			d.Waited += max(0, now.waited-old.waited)
			if old.ready && now.ready && now.times == old.times {
				d.Queued++
			}
		}
		list = append(list, d)
	}
	return list
}

// groupsOf returns the control group of a process in a hierarchy and those above it, without the root.
func (p Population) groupsOf(at *position, h hierarchy, controller string, pid int) []string {
	var all []string
	for g := h.cgroupOf(p.cgroups(at, pid), controller); g != "" && g != "/" && g != "."; g = path.Dir(g) {
		all = append(all, g)
	}
	return all
}

// writeLimits reads the limits of the control groups that the daemons are in, and of those above them.
func (p Population) writeLimits(at *position, all hierarchies) (list []WriteLimit) {
	h, err := all.of("blkio")
	if err != nil {
		return nil
	}
	for _, daemon := range p.daemons() {
		for _, group := range p.groupsOf(at, h, "blkio", daemon.PID) {
			dir, err := h.folder(group)
			if err != nil {
				break
			}
			l := WriteLimit{PID: daemon.PID, Path: group, Owner: ownerOfCgroup(group)}
			l.Role, l.Dir = daemon.Role, dir
			list = append(list, l.read(filepath.Join(h.root, dir), h.unified)...)
		}
	}
	return list
}

// read reads the limits of one control group, one for each device:
//
//	io.max                             8:0 rbps=max wbps=1048576 riops=max wiops=40
//	blkio.throttle.write_iops_device   8:0 40
func (w WriteLimit) read(dir string, unified bool) []WriteLimit {
	devices := map[string]WriteLimit{}
	set := func(device, key, value string) {
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n == 0 { // max, or none
			return
		}
		l, ok := devices[device]
		if !ok {
			l = w
			l.Device = device
		}
		switch key {
		case "wiops":
			l.IOPS = n
		case "wbps":
			l.Bytes = n
		}
		devices[device] = l
	}
	if unified {
		text, _ := readSmall(dir, "io.max")
		for line := range strings.Lines(text) {
			device, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			for word := range strings.FieldsSeq(rest) {
				key, value, _ := strings.Cut(word, "=")
				set(device, key, value)
			}
		}
	}
	for key, file := range map[string]string{"wiops": "write_iops_device", "wbps": "write_bps_device"} {
		text, _ := readSmall(dir, "blkio.throttle."+file) // version 1
		for line := range strings.Lines(text) {
			device, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			set(device, key, value)
		}
	}
	return slices.SortedFunc(maps.Values(devices), func(a, b WriteLimit) int { return cmp.Compare(a.Device, b.Device) })
}
