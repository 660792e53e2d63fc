package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxGroups bounds the groups that are looked at. A node of 250 pods and 300 units has about 600: what is inside of a pod
	// or a unit counts for it.
	maxGroups = 4000
	// maxMembers bounds what is read of the process ids in one group, in bytes: more than a hundred thousand of them.
	maxMembers = 1 << 20
	// noMemoryLimit is a limit of memory in version 1 from which on there is none: the largest number, rounded down to pages of
	// any size (PAGE_COUNTER_MAX of the kernel's include/linux/page_counter.h).
	noMemoryLimit = math.MaxInt64 &^ (1<<20 - 1)
)

// readMemoryHolders finds who has most memory. The working set is the usage less the file pages that were not used lately, as
// the kubelet has it from cAdvisor (setMemoryStats in container/libcontainer/handler.go).
func readMemoryHolders(ctx context.Context, at *position, root string) ([]Holder, error) {
	all, err := readHierarchies(root)
	if err != nil {
		return nil, err
	}
	h, ok := all.of("memory")
	if !ok {
		return nil, errors.New("finding who has memory: no hierarchy has the memory controller")
	}
	usage, limit, total := "memory.current", "memory.max", ""
	if !h.unified {
		usage, limit, total = "memory.usage_in_bytes", "memory.limit_in_bytes", "total_" // with what is below
	}
	groups, err := h.holders(ctx, at, root, "", usage)
	if err == nil && len(groups) == 0 {
		err = fmt.Errorf("finding who has memory: no control group has %s", usage)
	}
	return heaviest(groups, func(g *Holder) bool {
		dir := filepath.Join(root, g.Dir)
		at.enter(dir)
		stat, err := readSmall(filepath.Join(dir, "memory.stat"))
		if err != nil {
			return false // removed meanwhile
		}
		idle, _ := keyed(stat, total+"inactive_file")
		g.Current -= min(idle, g.Current)
		g.Shmem, _ = keyed(stat, total+"shmem")
		g.Files, _ = keyed(stat, total+"active_file")
		if g.Max, _ = readUint(dir, limit); g.Max >= noMemoryLimit {
			g.Max = 0
		}
		return true
	}), err
}

// readStalled finds who waits for memory.
func readStalled(ctx context.Context, at *position, root string) ([]StalledGroup, error) {
	all, err := readHierarchies(root)
	if err != nil {
		return nil, err
	}
	h, ok := all.unified()
	if !ok {
		return nil, errors.New("finding who waits for memory: control groups of version 1 do not say")
	}
	var list []StalledGroup
	told := false
	err = h.tenants(ctx, at, root, "", func(path, dir string) {
		b, err := readSmall(filepath.Join(root, dir, "memory.pressure"))
		if err != nil {
			return
		}
		told = true
		if stall, err := parseStall(b); err == nil && stall.Full.Avg10 > 0 {
			list = append(list, StalledGroup{Path: path, Dir: dir, Full: stall.Full, Owner: ownerOfCgroup(path)})
		}
	})
	if err == nil && !told {
		err = errors.New("finding who waits for memory: no control group has memory.pressure")
	}
	slices.SortFunc(list, func(a, b StalledGroup) int {
		return cmp.Or(cmp.Compare(b.Full.Avg10, a.Full.Avg10), cmp.Compare(a.Path, b.Path))
	})
	return list[:min(len(list), mostHolders)], err
}

// readPIDHolders finds who has most processes and threads, among all groups or those below one.
func readPIDHolders(ctx context.Context, at *position, root, below string) ([]Holder, error) {
	h, err := readHierarchyOfPIDs(root)
	if err != nil {
		return nil, err
	}
	groups, err := h.holders(ctx, at, root, below, "pids.current")
	return heaviest(groups, func(g *Holder) bool {
		g.Max, _ = readUint(root, g.Dir, "pids.max")
		return true
	}), err
}

// readHierarchyOfPIDs finds the hierarchy that counts processes.
func readHierarchyOfPIDs(root string) (hierarchy, error) {
	all, err := readHierarchies(root)
	if err != nil {
		return hierarchy{}, err
	}
	h, ok := all.of("pids")
	if !ok {
		return hierarchy{}, errors.New("reading limits of tasks: no hierarchy has the pids controller")
	}
	return h, nil
}

// readMembers reads which processes are in a group and below it; nil for no group, which means all there are.
func readMembers(ctx context.Context, at *position, root, below string) (map[int]bool, error) {
	if below == "" {
		return nil, nil
	}
	h, err := readHierarchyOfPIDs(root)
	if err != nil {
		return nil, err
	}
	top, err := h.folder(below)
	if err != nil {
		return nil, err
	}
	members := map[int]bool{}
	err = explore(ctx, at, filepath.Join(root, top), maxGroups, func(_, dir string, _ int) bool {
		b, _ := readLimited(filepath.Join(dir, "cgroup.procs"), maxMembers)
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				members[pid] = true
			}
		}
		return true
	})
	return members, err
}

// holders returns the tenants, of all or below one group, with the number in one of their files.
func (h hierarchy) holders(ctx context.Context, at *position, root, below, file string) ([]Holder, error) {
	var list []Holder
	err := h.tenants(ctx, at, root, below, func(path, dir string) {
		if n, err := readUint(root, dir, file); err == nil && n > 0 {
			list = append(list, Holder{Path: path, Dir: dir, Usage: Usage{Current: n}, Owner: ownerOfCgroup(path)})
		}
	})
	return list, err
}

// tenants visits the groups that are worth a name, of all or below one, with their folders on the host: pods, containers, units, and
// others that hold no more groups. What is inside of one counts for it.
func (h hierarchy) tenants(ctx context.Context, at *position, root, below string, visit func(cgroup, dir string)) error {
	top, err := h.folder(below)
	if err != nil {
		return err
	}
	return explore(ctx, at, filepath.Join(root, top), maxGroups, func(inside, _ string, children int) bool {
		cgroup := path.Join("/", below, inside)
		if inside == "/" || children > 0 && !isTenant(cgroup) {
			return true
		}
		visit(cgroup, path.Join(top, inside))
		return false
	})
}

// folder returns where a group is mounted on the host; that of all for no group.
func (h hierarchy) folder(cgroup string) (string, error) {
	if cgroup == "" {
		return h.point, nil
	}
	dir, ok := h.dir("/", cgroup)
	if !ok {
		return "", fmt.Errorf("looking into %s: it is outside of what is mounted at %s", cgroup, h.point)
	}
	return dir, nil
}

// isTenant reports whether a group is that of a pod, a container or a unit, which has a name of its own. Slices, and the groups
// of a quality of service, only hold others.
func isTenant(cgroup string) bool {
	base := path.Base(cgroup)
	return isUnit(base) || idOfCgroup(base) != "" || inKubepods(cgroup) && uidOfCgroup(base) != ""
}

// heaviest returns the three pods that have most, and the three of the others. Complete reads what else there is to know of a
// group, which may make it lighter and never heavier; it is done for as few as that takes, since the kernel adds up memory.stat
// only when it is read.
func heaviest(groups []Holder, complete func(*Holder) bool) []Holder {
	byCurrent := func(a, b Holder) int { return cmp.Or(cmp.Compare(b.Current, a.Current), cmp.Compare(a.Path, b.Path)) }
	slices.SortFunc(groups, byCurrent)
	var pods, others []Holder
	for _, g := range groups {
		list := &others
		if g.PodUID != "" {
			list = &pods
		}
		if full := len(*list) == mostHolders; full && g.Current <= (*list)[mostHolders-1].Current || !complete(&g) {
			continue
		}
		*list = append(*list, g)
		slices.SortFunc(*list, byCurrent)
		*list = (*list)[:min(len(*list), mostHolders)]
	}
	list := append(pods, others...)
	slices.SortFunc(list, byCurrent)
	return list
}
