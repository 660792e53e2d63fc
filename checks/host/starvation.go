package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"
)

// Starvation is how long the runtime and the kubelet wait for a CPU, and the limits of writes and memory of their
// control groups. Each can hold them up though nothing hangs.
type Starvation struct {
	Delays       []Delay
	WriteLimits  []WriteLimit
	MemoryLimits []MemoryLimit `json:",omitempty"`
}

// A Delay is how long the threads of a daemon ran and waited for a CPU between two reads.
type Delay struct {
	PID    int
	Name   string
	Role   Role
	Ran    time.Duration // of all threads, as is Waited
	Waited time.Duration
	Queued int // threads that were ready to run in both reads and did not run in between
	Over   time.Duration
}

// A WriteLimit is the limit of writes to a device of a daemon's control group, or of one above it (blkio.throttle of
// version 1, io.max of version 2).
type WriteLimit struct {
	PID    int    // of the daemon
	Path   string // of the group
	Dir    string // the folder of its files on the host
	Device string // major:minor
	Disk   string `json:",omitempty"` // its name, such as sda
	IOPS   uint64 // writes a second; 0 for no limit
	Bytes  uint64 // a second; 0 for no limit
	Owner         // of the group; the role is the daemon's
}

// ReadStarvation reads twice how long the threads of the runtime and the kubelet wait for a CPU, and their limits of
// writes and memory. With an error there may be a part of it.
func ReadStarvation(
	ctx context.Context, fs *CgroupFS, processes Population, between time.Duration,
) (Starvation, error) {
	return within(ctx, "reading waits for a CPU", func(at *position) (Starvation, error) {
		var s Starvation
		before, after, over, err := twice(ctx, between, func() (all []map[string]schedule, _ error) {
			for _, daemon := range processes.daemons() {
				all = append(all, processes.schedules(daemon.PID))
			}
			return all, nil
		})
		for i, daemon := range processes.daemons()[:len(after)] {
			d := Delay{PID: daemon.PID, Name: daemon.Name, Role: daemon.Role, Over: over}
			for thread, old := range before[i] {
				now := after[i][thread]
				d.Ran += max(0, now.ran-old.ran)
				d.Waited += max(0, now.waited-old.waited)
				if old.ready && now.ready && now.ran == old.ran {
					d.Queued++
				}
			}
			s.Delays = append(s.Delays, d)
		}
		all, errGroups := fs.read()
		if h, err := all.of("blkio"); err == nil {
			s.WriteLimits = processes.writeLimits(at, h)
		}
		s.MemoryLimits = processes.memoryLimits(at, all)
		return s, errors.Join(processes.gap(), err, errGroups)
	})
}

// A schedule is for how long a thread ran and waited to run. The kernel counts a wait when it ends.
type schedule struct {
	ran, waited time.Duration
	ready       bool // to run
}

// schedules reads the threads of a process (Documentation/scheduler/sched-stats.rst, schedstat), by their folders.
func (p Population) schedules(pid int) map[string]schedule {
	all := map[string]schedule{}
	for _, thread := range p.threads(pid) {
		text, _ := readSmall(thread, "schedstat")
		st, err := readStat(thread)
		s := schedule{ready: st.state == 'R'}
		if _, errScan := fmt.Sscan(text, (*int64)(&s.ran), (*int64)(&s.waited)); errScan == nil && err == nil {
			all[thread] = s
		}
	}
	return all
}

// writeLimits reads the limits of the control groups that the daemons are in, and of those above them:
//
//	io.max                             8:0 rbps=max wbps=1048576 riops=max wiops=40
//	blkio.throttle.write_iops_device   8:0 40
func (p Population) writeLimits(at *position, h *hierarchy) (list []WriteLimit) {
	for _, g := range p.daemonGroups(at, h, "blkio") {
		limit := WriteLimit{Path: g.path, Dir: g.dir, Owner: OwnerOfCgroup(g.path)}
		for _, file := range [][2]string{
			{"io.max"},
			{"blkio.throttle.write_iops_device", "wiops="},
			{"blkio.throttle.write_bps_device", "wbps="},
		} {
			text, _ := readSmall(h.root, g.dir, file[0])
			for line := range strings.Lines(text) {
				l := limit
				device, rest, _ := strings.Cut(line, " ")
				_, iops, _ := strings.Cut(file[1]+rest, "wiops=")
				_, bytes, _ := strings.Cut(file[1]+rest, "wbps=")
				l.Device = device
				if link, err := os.Readlink(deviceDir(h.root, device)); err == nil {
					l.Disk = path.Base(link)
				}
				_, _ = fmt.Sscan(iops, &l.IOPS) // fails for max
				_, _ = fmt.Sscan(bytes, &l.Bytes)
				for _, pid := range g.daemons {
					l.PID, l.Role = pid, p.roles[pid].Role
					list = append(list, l)
				}
			}
		}
	}
	return list
}
