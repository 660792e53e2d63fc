package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// nearLimit is the share of its limit from which a pod's cgroup is worth keeping; what is too much, the judge says.
	nearLimit = 0.8
	// maxUsages bounds the pods that are kept, the fullest first.
	maxUsages = 50
)

// ReadPIDs reads how many processes and threads there are, against every limit that can stop a fork: the kernel's and
// those of the cgroups that the runtime, the kubelet and the pods are in. With an error there may be a part of it.
func ReadPIDs(ctx context.Context, root string, people Population) (PIDs, error) {
	p, err := readTaskLimits(root)
	if err != nil {
		return PIDs{}, err
	}
	p.Cgroups, err = within(ctx, func(at *position) ([]CgroupUsage, error) { return readPIDCgroups(ctx, at, root, people) })
	return p, err
}

func readTaskLimits(root string) (PIDs, error) {
	load, err := readSmall(filepath.Join(root, "proc/loadavg"))
	if err != nil {
		return PIDs{}, fmt.Errorf("counting tasks: %w", err)
	}
	var p PIDs
	if p.Tasks, err = parseLoadTasks(load); err != nil {
		return PIDs{}, fmt.Errorf("counting tasks: %w", err)
	}
	if p.PIDMax, err = readUint(root, "proc/sys/kernel/pid_max"); err != nil {
		return PIDs{}, fmt.Errorf("reading the limit of process ids: %w", err)
	}
	if p.ThreadsMax, err = readUint(root, "proc/sys/kernel/threads-max"); err != nil {
		return PIDs{}, fmt.Errorf("reading the limit of threads: %w", err)
	}
	return p, nil
}

// parseLoadTasks takes the number of threads of the host out of /proc/loadavg, where it stands after those that run:
//
//	0.20 0.18 0.12 1/180 11206
func parseLoadTasks(b []byte) (int, error) {
	fields := strings.Fields(string(b))
	if len(fields) < 4 {
		return 0, fmt.Errorf("%d fields in loadavg, want 5", len(fields))
	}
	_, total, _ := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(total)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("number of threads %.40q in loadavg", fields[3])
	}
	return n, nil
}

func readPIDCgroups(ctx context.Context, at *position, root string, people Population) ([]CgroupUsage, error) {
	h, err := readHierarchyOfPIDs(root)
	if err != nil {
		return nil, err
	}
	usages, known := []CgroupUsage{}, map[string]bool{}
	for _, daemon := range people.daemons() {
		at.enter(fmt.Sprintf("the cgroup of process %d (%s)", daemon.PID, daemon.Name))
		cgroup, _ := h.cgroupIn(people.scan.readOf(people.all[daemon.PID], "cgroup"), "pids")
		for _, u := range h.usagesAbove(root, cgroup, daemon.Role) {
			if !known[u.Path] {
				known[u.Path] = true
				usages = append(usages, u)
			}
		}
	}
	var pods []CgroupUsage
	_, err = h.walk(ctx, at, root, func(cgroup, dir string) {
		if known[cgroup] || !isKubepods(cgroup) && !inKubepods(cgroup) {
			return
		}
		u, ok := readPIDUsage(cgroup, dir)
		if ok && isKubepods(cgroup) && !inKubepods(cgroup) {
			usages = append(usages, u)
		} else if ok && worthKeeping(u) {
			pods = append(pods, u)
		}
	})
	return append(usages, fullest(pods)...), errors.Join(people.gap(), err)
}

// usagesAbove returns the use of a daemon's cgroup, and of those above it that have a limit: each of them can refuse a
// fork.
func (h hierarchy) usagesAbove(root, cgroup string, role Role) []CgroupUsage {
	var list []CgroupUsage
	for c := cgroup; c != "/" && c != "." && c != ""; c = path.Dir(c) {
		dir, ok := h.dir(root, c)
		if !ok {
			break
		}
		u, ok := readPIDUsage(c, dir)
		if !ok || c != cgroup && u.Max == 0 {
			continue
		}
		if c == cgroup {
			u.Role = role
		}
		list = append(list, u)
	}
	return list
}

// readPIDUsage reads pids.current, pids.max and pids.events, which both versions have.
func readPIDUsage(cgroup, dir string) (CgroupUsage, bool) {
	current, err := readUint(dir, "pids.current")
	if err != nil {
		return CgroupUsage{}, false
	}
	limit, err := readUint(dir, "pids.max")
	if err != nil {
		return CgroupUsage{}, false
	}
	u := CgroupUsage{Path: cgroup, Usage: Usage{Current: current, Max: limit}, Owner: ownerOfCgroup(cgroup)}
	if b, err := readSmall(filepath.Join(dir, "pids.events")); err == nil {
		u.Events, _ = keyed(b, "max")
	}
	return u, true
}

func worthKeeping(u CgroupUsage) bool {
	return u.Events > 0 || u.Max > 0 && float64(u.Current) >= nearLimit*float64(u.Max)
}

// fullest orders by the share of the limit that is used, and by how often it refused.
func fullest(list []CgroupUsage) []CgroupUsage {
	share := func(u CgroupUsage) float64 {
		if u.Max == 0 {
			return 0
		}
		return float64(u.Current) / float64(u.Max)
	}
	slices.SortFunc(list, func(a, b CgroupUsage) int {
		return cmp.Or(-cmp.Compare(share(a), share(b)), -cmp.Compare(a.Events, b.Events), cmp.Compare(a.Path, b.Path))
	})
	return list[:min(len(list), maxUsages)]
}
