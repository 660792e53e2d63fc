package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	Throttled    []Throttling // runtime's, kubelet's, all pods' together, and those above; only where there is a quota
}

// A FrozenCgroup is one whose tasks do not run.
type FrozenCgroup struct {
	Path string
	Self bool // frozen itself, not by a parent
	// Freezing is set when not all its tasks have stopped yet: one in uninterruptible sleep keeps version 2 from it.
	Freezing bool
	Tasks    int   // threads
	Daemons  []int // runtimes and kubelets among them, by process id
	Shim     int   // the shim that one of them is below of; 0 for none
	Owner
}

// Throttling counts the periods in which the CPU controller throttled a cgroup between two reads of cpu.stat.
type Throttling struct {
	Path      string
	Quota     float64       // cores that it may use; 0 for no limit
	Periods   uint64        // periods that passed
	Throttled uint64        // of them, throttled
	Over      time.Duration // between the reads
	Daemons   []int         // runtimes and kubelets in it and below, by process id
	Owner
}

// ReadCgroups reads the number of control groups, the frozen ones, and how often the CPU controller throttles the
// runtime and the kubelet between two reads. With an error there may be a part of it: to walk thousands of groups may
// take too long, and the others are a few files.
func ReadCgroups(ctx context.Context, fs *CgroupFS, processes Population, between time.Duration) (Cgroups, error) {
	all, err := fs.read()
	if err != nil {
		return Cgroups{}, err
	}
	c, errCount := within(ctx, "counting control groups", func(at *position) (Cgroups, error) {
		c := Cgroups{Version: all.version(), Dying: -1}
		return c, c.count(at, all)
	})
	var throttling sync.WaitGroup
	var errThrottled error
	throttling.Go(func() {
		c.Throttled, errThrottled = within(ctx, "reading who is throttled", func(at *position) ([]Throttling, error) {
			return readThrottled(ctx, at, all, processes, between)
		})
	})
	short, cancel := context.WithTimeout(ctx, walkTimeout)
	defer cancel()
	frozen, errFrozen := within(short, "looking for frozen control groups", func(at *position) ([]FrozenCgroup, error) {
		return findFrozen(short, at, all, processes)
	})
	throttling.Wait()
	c.Frozen = frozen
	return c, errors.Join(processes.gap(), errCount, errFrozen, errThrottled)
}

// readThrottled reads cpu.stat of the daemons' groups, and of the one above all pods, twice, where there is a quota.
func readThrottled(
	ctx context.Context, at *position, all hierarchies, processes Population, between time.Duration,
) (throttled []Throttling, _ error) {
	cpu, err := all.of("cpu")
	if err != nil {
		return nil, nil // version 1 without the controller: nothing can be throttled
	}
	groups := slices.Concat(processes.daemonGroups(at, cpu, "cpu"), cpu.kubepods(at))
	groups = slices.DeleteFunc(groups, func(g daemonGroup) bool { return cpu.throttling(g).Quota == 0 })
	if len(groups) == 0 {
		return nil, nil
	}
	before, after, over, err := twice(ctx, between, func() (list []Throttling, _ error) {
		for _, g := range groups {
			list = append(list, cpu.throttling(g))
		}
		return list, nil
	})
	for i, t := range after {
		if t.Quota > 0 { // else it is gone meanwhile
			t.Over = over
			t.Periods -= min(before[i].Periods, t.Periods)
			t.Throttled -= min(before[i].Throttled, t.Throttled)
			throttled = append(throttled, t)
		}
	}
	return throttled, err
}

// kubepods returns the group that holds all pods, at the top of the hierarchy or below --cgroup-root.
func (h *hierarchy) kubepods(at *position) (list []daemonGroup) {
	at.enter("the control groups at %s", h.point)
	top := filepath.Join(h.root, h.point)
	for _, pattern := range []string{"*kubepods*", "*/*kubepods*"} {
		found, _ := filepath.Glob(filepath.Join(top, pattern)) // its only error is a bad pattern
		for _, dir := range found {
			name := strings.TrimPrefix(dir, top)
			if isKubepods(name) {
				g := group{path: path.Join(h.base, name), dir: path.Join(h.point, name)}
				list = append(list, daemonGroup{group: g})
			}
		}
	}
	return list
}

// count reads how many cgroups there are. Version 1 does not count the dying ones apart, and the kernel does since
// Linux 4.14.
func (c *Cgroups) count(at *position, all hierarchies) error {
	if c.Version == 2 {
		h, _ := all.of("")
		text, err := readSmall(h.root, h.point, "cgroup.stat")
		if err != nil {
			return fmt.Errorf("counting cgroups: %w", err)
		}
		total, _ := numberAfter(text, "nr_descendants")
		c.Total = int(min(total, math.MaxInt32))
		if dying, ok := numberAfter(text, "nr_dying_descendants"); ok {
			c.Dying = int(min(dying, math.MaxInt32))
		}
		return nil
	}
	at.enter("the number of cgroups")
	text, err := readSmall(all[0].root, "proc/cgroups")
	if err != nil {
		return fmt.Errorf("counting cgroups: %w", err)
	}
	c.ByController = map[string]int{}
	for line := range strings.Lines(text) {
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
func findFrozen(
	ctx context.Context, at *position, all hierarchies, processes Population,
) (frozen []FrozenCgroup, failed error) {
	for _, h := range all {
		if !h.unified && !slices.Contains(h.options, "freezer") {
			continue
		}
		failed = errors.Join(failed, h.each(ctx, at, func(g group) {
			f, tasks := h.freezer(g)
			if len(tasks) == 0 && !f.Self { // also between one that is frozen and those with tasks
				return
			}
			f.Path, f.Owner, f.Tasks = g.path, OwnerOfCgroup(g.path), len(tasks)
			for _, process := range processes.of(RoleRuntime, RoleKubelet) {
				if slices.Contains(tasks, strconv.Itoa(process.PID)) {
					f.Daemons = append(f.Daemons, process.PID)
				}
			}
			for _, task := range tasks {
				if pid, _ := strconv.Atoi(task); f.Shim == 0 {
					f.Shim = processes.shimOf(pid)
				}
			}
			if len(frozen) < maxFrozen {
				frozen = append(frozen, f)
			}
		}))
	}
	return frozen, failed
}

// freezer reads whether a cgroup is frozen, and the threads of one that is, as far as 64 KiB of their ids go. The
// root has no freezer. In version 2 (since Linux 5.2) a task in uninterruptible sleep keeps a cgroup from being frozen.
func (h *hierarchy) freezer(g group) (f FrozenCgroup, tasks []string) {
	dir, self, list := filepath.Join(h.root, g.dir), "freezer.self_freezing", "tasks"
	state, _ := readSmall(dir, "freezer.state") // THAWED, FREEZING, FROZEN
	if strings.HasPrefix(state, "THAWED") {
		return f, nil
	}
	frozen := strings.HasPrefix(state, "FROZEN")
	f.Freezing = strings.HasPrefix(state, "FREEZING")
	if h.unified {
		self, list = "cgroup.freeze", "cgroup.threads"
		events, _ := readSmall(dir, "cgroup.events")
		n, _ := numberAfter(events, "frozen")
		frozen = n == 1
	}
	set, _ := readUint(dir, self)
	f.Self = set == 1
	f.Freezing = f.Freezing || f.Self && !frozen
	if frozen || f.Freezing {
		ids, _ := readSmall(dir, list)
		tasks = strings.Fields(ids)
	}
	return f, tasks
}

// throttling reads cpu.stat, and the quota with its period, both in microseconds: of version 2 in one file, "50000
// 100000" or "max 100000" for no limit, of version 1 in two files with -1 for no limit.
func (h *hierarchy) throttling(g daemonGroup) Throttling {
	dir := filepath.Join(h.root, g.dir)
	limit, _ := readSmall(dir, "cpu.max")
	if !h.unified {
		quota, _ := readSmall(dir, "cpu.cfs_quota_us")
		period, _ := readSmall(dir, "cpu.cfs_period_us")
		limit = quota + " " + period
	}
	t := Throttling{Path: g.path, Quota: cores(limit), Daemons: g.daemons, Owner: OwnerOfCgroup(g.path)}
	t.Role = g.role
	stat, _ := readSmall(dir, "cpu.stat")
	t.Periods, _ = numberAfter(stat, "nr_periods")
	t.Throttled, _ = numberAfter(stat, "nr_throttled")
	return t
}

// OwnQuota returns the tightest of the limits of CPU that have held up this process: of its control group, or of one
// above it. Periods and Throttled count since the group has the limit. It is false where there is none.
func OwnQuota(root string) (tightest Throttling, ok bool) {
	text, _ := readSmall(root, "proc/self/cgroup")
	h, err := NewCgroupFS(root).of("cpu")
	if err != nil {
		return Throttling{}, false
	}
	for at := h.cgroupOf(parseMemberships(text), "cpu"); at != "" && at != "/"; at = path.Dir(at) {
		dir, err := h.folder(at)
		if err != nil {
			break
		}
		t := h.throttling(daemonGroup{group: group{path: at, dir: dir}})
		if t.Quota > 0 && t.Throttled > 0 && t.Periods > 0 && (!ok || t.Quota < tightest.Quota) {
			tightest, ok = t, true
		}
	}
	return tightest, ok
}

// cores divides a quota by its period; 0 for no limit.
func cores(text string) float64 {
	var limit, period uint32
	if _, err := fmt.Sscan(text, &limit, &period); err != nil || period == 0 {
		return 0
	}
	return float64(limit) / float64(period)
}
