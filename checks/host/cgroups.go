package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxFrozen bounds the frozen cgroups that are kept: those near the root first, which freeze the others.
const maxFrozen = 200

// Cgroups is the state of the control groups.
type Cgroups struct {
	Version      int            // 1 or 2; 1 also for a hybrid
	Total        int            // cgroups, the dying ones included
	ByController map[string]int // version 1: num_cgroups of /proc/cgroups
	Dying        int            // removed, yet held by charged memory; -1 when the kernel does not count them
	Frozen       []FrozenCgroup
	Throttled    []Throttling // runtime's and kubelet's, and those above them; only where there is a quota
}

// A FrozenCgroup is one whose tasks do not run.
type FrozenCgroup struct {
	Path string
	Self bool // frozen itself, not by a parent
	// Freezing is set when not all its tasks have stopped yet: one in uninterruptible sleep keeps version 2 from it.
	Freezing bool
	Tasks    int // threads
	Owner
}

// Throttling is what the CPU controller took away from a cgroup between two reads of cpu.stat.
type Throttling struct {
	Path      string
	Quota     float64       // cores that it may use; 0 for no limit
	Periods   uint64        // periods that passed
	Throttled uint64        // of them, throttled
	Lost      time.Duration // time that its tasks waited
	Over      time.Duration // between the reads
	Owner
}

// ReadCgroups reads how many control groups there are, which of them are frozen, and what the CPU controller takes away
// from the runtime and the kubelet between two reads. With an error there may be a part of it.
func ReadCgroups(ctx context.Context, root string, people Population, between time.Duration) (Cgroups, error) {
	return within(ctx, func(at *position) (Cgroups, error) {
		all, err := readHierarchies(root)
		if err != nil {
			return Cgroups{}, err
		}
		cpu, _ := all.of("cpu")
		throttlers := people.throttlers(at, cpu)
		c := Cgroups{Version: all.version(), Dying: -1}
		err = errors.Join(people.gap(), c.count(at, root, all), c.findFrozen(ctx, at, root, all))
		if len(throttlers) == 0 {
			return c, err
		}
		if e := pause(ctx, between-time.Since(throttlers[0].at)); e != nil {
			return c, errors.Join(err, fmt.Errorf("looking at cpu.stat again: %w", e))
		}
		for _, t := range throttlers {
			if q, err := readQuota(t.dir, cpu.unified); err == nil {
				c.Throttled = append(c.Throttled, t.until(q))
			}
		}
		return c, err
	})
}

// count reads how many cgroups there are. Version 1 does not count the dying ones apart, and the kernel does since
// Linux 4.14.
func (c *Cgroups) count(at *position, root string, all hierarchies) error {
	if c.Version == 2 {
		h, _ := all.unified()
		b, err := readSmall(root, h.point, "cgroup.stat")
		if err != nil {
			return fmt.Errorf("counting cgroups: %w", err)
		}
		total, _ := keyed(b, "nr_descendants")
		c.Total = int(min(total, math.MaxInt32))
		if dying, ok := keyed(b, "nr_dying_descendants"); ok {
			c.Dying = int(min(dying, math.MaxInt32))
		}
		return nil
	}
	at.enter("the number of cgroups")
	b, err := readSmall(root, "proc/cgroups")
	if err != nil {
		return fmt.Errorf("counting cgroups: %w", err)
	}
	c.ByController = map[string]int{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // name, hierarchy, number, enabled; hierarchy 0 is not mounted in version 1
		if len(f) != 4 || f[1] == "0" {
			continue
		}
		if n, err := strconv.Atoi(f[2]); err == nil {
			c.ByController[f[0]] = n
			c.Total = max(c.Total, n)
		}
	}
	return nil
}

// findFrozen finds the frozen cgroups of every hierarchy that can freeze: a hybrid has two.
func (c *Cgroups) findFrozen(ctx context.Context, at *position, root string, all hierarchies) error {
	var failed error
	for _, h := range all {
		read := readFreezer
		if h.unified {
			read = readFreeze
		} else if !slices.Contains(h.options, "freezer") {
			continue
		}
		failed = errors.Join(failed, walk(ctx, at, filepath.Join(root, h.point), maxCgroups,
			func(cgroup, dir string, _ int) bool {
				f, ok := read(dir)
				f.Path, f.Owner = cgroup, ownerOfCgroup(cgroup)
				// One without tasks that is not frozen itself lies between one that is and those with tasks.
				if ok && len(c.Frozen) < maxFrozen && (f.Self || f.Tasks > 0) {
					c.Frozen = append(c.Frozen, f)
				}
				return true
			}))
	}
	return failed
}

// readFreezer reads the freezer of version 1. False for a cgroup that runs, and for the root, which has none.
func readFreezer(dir string) (FrozenCgroup, bool) {
	b, _ := readSmall(dir, "freezer.state")
	state := string(bytes.TrimSpace(b))
	if state != "FROZEN" && state != "FREEZING" {
		return FrozenCgroup{}, false
	}
	self, _ := readUint(dir, "freezer.self_freezing")
	return FrozenCgroup{Self: self == 1, Freezing: state == "FREEZING", Tasks: countTasks(dir, "tasks")}, true
}

// readFreeze reads the freezer of version 2 (since Linux 5.2), where a task in uninterruptible sleep keeps a cgroup
// from being frozen.
func readFreeze(dir string) (FrozenCgroup, bool) {
	events, _ := readSmall(dir, "cgroup.events")
	self, _ := readUint(dir, "cgroup.freeze")
	frozen, _ := keyed(events, "frozen")
	if self != 1 && frozen != 1 {
		return FrozenCgroup{}, false
	}
	return FrozenCgroup{Self: self == 1, Freezing: frozen != 1, Tasks: countTasks(dir, "cgroup.threads")}, true
}

// countTasks counts the threads in a cgroup, as far as 64 KiB of their ids go.
func countTasks(dir, file string) int {
	b, _ := readSmall(dir, file)
	return len(strings.Fields(string(b)))
}

// A quota is what a cgroup may use of the CPU, and what was taken away from it since it was made.
type quota struct {
	cores              float64 // 0 for no limit
	periods, throttled uint64
	lost               time.Duration
}

// A throttler is a cgroup with a quota that the runtime or the kubelet is in, and its first read.
type throttler struct {
	daemonGroup
	quota
	at time.Time
}

// throttlers finds the cgroups with a quota that the runtime and the kubelet are in: their own or one above, since a
// limit on the slice throttles too.
func (p Population) throttlers(at *position, cpu hierarchy) []throttler {
	var list []throttler
	for _, g := range p.daemonGroups(at, cpu, "cpu") {
		if q, err := readQuota(g.dir, cpu.unified); err == nil && q.cores > 0 {
			list = append(list, throttler{g, q, time.Now()})
		}
	}
	return list
}

// until returns what was taken away since the first read.
func (t throttler) until(now quota) Throttling {
	o := ownerOfCgroup(t.cgroup)
	o.Role = t.role
	return Throttling{
		Path: t.cgroup, Quota: now.cores, Over: time.Since(t.at), Owner: o,
		Periods:   now.periods - min(t.periods, now.periods),
		Throttled: now.throttled - min(t.throttled, now.throttled),
		Lost:      max(now.lost-t.lost, 0),
	}
}

// readQuota reads cpu.stat and the quota with its period, both in microseconds: of version 2 in one file, "50000
// 100000" or "max 100000" for no limit, of version 1 in two files with -1 for no limit.
func readQuota(dir string, unified bool) (quota, error) {
	stat, err := readSmall(dir, "cpu.stat")
	limits := []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"}
	if unified {
		limits = []string{"cpu.max"}
	}
	var text []byte
	for _, file := range limits {
		b, e := readSmall(dir, file)
		text = append(append(text, b...), ' ')
		err = errors.Join(err, e)
	}
	q := parseCPUStat(stat)
	q.cores = cores(string(text))
	return q, err
}

// parseCPUStat reads cpu.stat. The time lost is in microseconds in version 2 and in nanoseconds in version 1.
func parseCPUStat(b []byte) quota {
	var q quota
	q.periods, _ = keyed(b, "nr_periods")
	q.throttled, _ = keyed(b, "nr_throttled")
	us, _ := keyed(b, "throttled_usec")
	ns, _ := keyed(b, "throttled_time")
	q.lost = time.Duration(min(ns, math.MaxInt64/2)) + time.Duration(min(us, math.MaxInt64/2000))*time.Microsecond
	return q
}

// cores divides a quota by its period; 0 for no limit.
func cores(text string) float64 {
	var limit, period uint32
	if _, err := fmt.Sscan(text, &limit, &period); err != nil || period == 0 {
		return 0
	}
	return float64(limit) / float64(period)
}
