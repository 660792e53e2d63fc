package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// nearLimit is the share of its limit from which a cgroup is kept, and from which its processes are counted.
	nearLimit = 0.8
	// maxUsages bounds the pods that are kept, the fullest first.
	maxUsages = 50
	// mostConsumers is how many of a kind are named: pods, other groups, processes, names of processes.
	mostConsumers = 3
	// maxMembers bounds the process ids that are read of one group, in bytes: room for more than a hundred thousand.
	maxMembers = 1 << 20
	// noMemoryLimit is a limit of memory in version 1 from which on there is none: the largest number, rounded down
	// to pages of any size (PAGE_COUNTER_MAX of the kernel's include/linux/page_counter.h).
	noMemoryLimit = math.MaxInt64 &^ (1<<20 - 1)
	// kernelThreads is the name under which the kernel's threads are counted together, each of which has another name.
	kernelThreads = "kernel threads"
)

// PIDs is how many processes and threads there are, against the limits of the kernel and of cgroups.
type PIDs struct {
	Tasks      int           // all threads of the host
	PIDMax     uint64        // kernel.pid_max
	ThreadsMax uint64        // kernel.threads-max
	Cgroups    []CgroupUsage // pids controller: of the runtime and the kubelet, kubepods, and pods near their limit
}

// A CgroupUsage is the use of a limit in one cgroup.
type CgroupUsage struct {
	Path   string // below the controller's root, such as /system.slice/containerd.service
	Events uint64 // pids.events max: how often the limit refused a fork
	// Daemons are the runtimes and kubelets in it and below, by process id; nil for a group of pods.
	Daemons []int
	Usage
	Owner
}

// Consumers are the largest consumers of memory and processes, and the groups that wait for memory.
type Consumers struct {
	Memory        []Consumer       // pods, and groups that belong to none, three of each; most first
	Resident      []ResidentMemory // processes, most first
	Stalled       []StalledGroup   // pods and others that wait for memory, most first
	PIDs          []Consumer       // as Memory
	ProcessGroups []ProcessGroup   // processes by name, most threads first
}

// A Consumer is the use of a resource by a control group and those below it: of memory the working set in bytes, as the
// kubelet counts it; of pids all threads. Max is the limit of the group itself.
type Consumer struct {
	Path string // as in /proc/PID/cgroup
	Dir  string // the folder of its files on the host, such as /sys/fs/cgroup/memory/kubepods/pod1b2c
	Usage
	Shmem uint64 // bytes of the memory that are tmpfs or shared
	Owner
}

// A StalledGroup is a control group in which at times no task runs because all wait for memory.
type StalledGroup struct {
	Path string
	Dir  string   // as of a Consumer
	Full Averages // memory.pressure, of version 2 and of the unified hierarchy of a hybrid
	Owner
}

// A ResidentMemory is the part of a process's memory that is not swapped out (RSS).
type ResidentMemory struct {
	PID   int
	Name  string
	Bytes uint64
	Owner
}

// A ProcessGroup is the processes of one name, or all threads of the kernel.
type ProcessGroup struct {
	Name               string
	Processes, Threads int
	// PID is the one process, or the parent of more than half of several; 0 where there is none. The owner is that
	// one's.
	PID    int
	Parent string // the name of that parent
	Owner
}

// ReadPIDs reads how many processes and threads there are, against every limit that can stop a fork: the kernel's and
// those of the cgroups that the runtime, the kubelet and the pods are in. With an error there may be a part of it.
func ReadPIDs(ctx context.Context, fs *CgroupFS, processes Population) (PIDs, error) {
	load, errLoad := readSmall(fs.root, "proc/loadavg")
	tasks, errTasks := parseLoadTasks(load)
	pidMax, errPIDs := readUint(fs.root, "proc/sys/kernel/pid_max")
	threadsMax, errThreads := readUint(fs.root, "proc/sys/kernel/threads-max")
	if err := cmp.Or(errLoad, errTasks, errPIDs, errThreads); err != nil {
		return PIDs{}, fmt.Errorf("counting tasks: %w", err)
	}
	p := PIDs{Tasks: tasks, PIDMax: pidMax, ThreadsMax: threadsMax}
	h, err := fs.of("pids")
	if err != nil {
		return p, err
	}
	ofDaemons, err := within(ctx, "reading limits of daemons", func(at *position) ([]CgroupUsage, error) {
		return h.daemonPIDs(at, processes), processes.gap()
	})
	short, cancel := context.WithTimeout(ctx, walkTimeout)
	defer cancel()
	ofPods, errPods := within(short, "reading limits of pods", func(at *position) ([]CgroupUsage, error) {
		return h.podPIDs(short, at)
	})
	p.Cgroups = append(ofDaemons, ofPods...)
	return p, errors.Join(err, errPods)
}

// parseLoadTasks takes the number of threads of the host out of /proc/loadavg, after those that run:
//
//	0.20 0.18 0.12 1/180 11206
func parseLoadTasks(text string) (int, error) {
	var load float64
	var running, total uint32
	if _, err := fmt.Sscanf(text, "%f %f %f %d/%d ", &load, &load, &load, &running, &total); err != nil {
		return 0, fmt.Errorf("malformed loadavg %.40q", text)
	}
	return int(total), nil
}

// daemonPIDs returns the groups of the runtime and the kubelet, and those above them that have a limit.
func (h *hierarchy) daemonPIDs(at *position, processes Population) (usages []CgroupUsage) {
	for _, g := range processes.daemonGroups(at, h, "pids") {
		u, ok := h.pids(g.group)
		u.Owner, u.Daemons = OwnerOfCgroup(g.path), g.daemons
		if u.Role = g.role; ok && (u.Role != "" || u.Max > 0) { // one above refuses a fork only with a limit
			usages = append(usages, u)
		}
	}
	return usages
}

// podPIDs returns the group of all pods, and those below it that are near their limit.
func (h *hierarchy) podPIDs(ctx context.Context, at *position) (usages []CgroupUsage, _ error) {
	var pods []CgroupUsage
	err := h.each(ctx, at, func(g group) {
		inside := inKubepods(g.path)
		if !inside && !isKubepods(g.path) {
			return
		}
		switch u, ok := h.pids(g); {
		case !ok:
		case !inside:
			usages = append(usages, u)
		case u.Events > 0 || u.share() >= nearLimit:
			u.Owner = OwnerOfCgroup(g.path)
			pods = append(pods, u)
		}
	})
	return append(usages, top(pods, maxUsages, byShare)...), err
}

// pids reads pids.current, pids.max and pids.events, which both versions have.
func (h *hierarchy) pids(g group) (CgroupUsage, bool) {
	dir := filepath.Join(h.root, g.dir)
	current, errCurrent := readUint(dir, "pids.current")
	limit, errLimit := readUint(dir, "pids.max")
	if errCurrent != nil || errLimit != nil {
		return CgroupUsage{}, false
	}
	u := CgroupUsage{Path: g.path, Usage: Usage{Current: current, Max: limit}}
	events, _ := readSmall(dir, "pids.events")
	u.Events, _ = numberAfter(events, "max")
	return u, true
}

// share is how much of the limit is used, 0 without one.
func (u Usage) share() float64 {
	if u.Max == 0 {
		return 0
	}
	return float64(u.Current) / float64(u.Max)
}

// byShare orders by the share of the limit that is used, and by how often it refused.
func byShare(a, b CgroupUsage) int {
	return cmp.Or(cmp.Compare(b.share(), a.share()), cmp.Compare(b.Events, a.Events), cmp.Compare(a.Path, b.Path))
}

// tightest returns the cgroup whose limit is nearest, where one is near: one of a pod only if no other is, and none
// where a limit of the whole node is nearer.
func (p PIDs) tightest() string {
	var near []CgroupUsage
	node := max(Usage{uint64(p.Tasks), p.PIDMax}.share(), Usage{uint64(p.Tasks), p.ThreadsMax}.share())
	for _, u := range p.Cgroups {
		// A limit of the node or of a service counts for more than that of a pod.
		if u.share() >= nearLimit && (node < nearLimit || u.PodUID == "" && u.share() > node) {
			near = append(near, u)
		}
	}
	if len(near) == 0 {
		return ""
	}
	return slices.MinFunc(near, func(a, b CgroupUsage) int {
		return cmp.Or(min(len(a.PodUID), 1)-min(len(b.PodUID), 1), byShare(a, b))
	}).Path
}

// ReadConsumers finds the largest consumers of memory, and of processes in the cgroup whose limit is nearest, or else
// on the node. Where the pressure shows that tasks wait for memory it finds the groups that wait. With an error there
// may be a part of it.
func ReadConsumers(
	ctx context.Context, fs *CgroupFS, processes Population, pressure Pressure, pids PIDs,
) (Consumers, error) {
	below := pids.tightest()
	short, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	type groups struct {
		Consumers
		members map[int]bool // of the cgroup below; nil for the whole node
	}
	found, err := within(short, "reading what control groups use", func(at *position) (groups, error) {
		var g groups
		var errs [4]error
		g.Memory, errs[0] = fs.memory(short, at)
		if m := pressure.Memory; m != nil && m.Full.Avg10 > 0 {
			g.Stalled, errs[1] = fs.stalled(short, at)
		}
		g.PIDs, errs[2] = fs.tasks(short, at, below)
		if below != "" {
			g.members, errs[3] = fs.members(short, at, below)
		}
		return g, errors.Join(errs[:]...)
	})
	h := found.Consumers
	h.Resident = processes.resident()
	if below == "" || found.members != nil {
		h.ProcessGroups = processes.processGroups(found.members)
	}
	owners := map[*Owner]int{}
	for i := range h.Resident {
		owners[&h.Resident[i].Owner] = h.Resident[i].PID
	}
	for i := range h.ProcessGroups {
		owners[&h.ProcessGroups[i].Owner] = h.ProcessGroups[i].PID
	}
	return h, errors.Join(processes.gap(), err, processes.setOwners(ctx, owners))
}

// memory returns the groups with the largest working sets: the usage less the file pages that were not used lately, as
// the kubelet has it from cAdvisor (setMemoryStats in container/libcontainer/handler.go).
func (fs *CgroupFS) memory(ctx context.Context, at *position) ([]Consumer, error) {
	h, err := fs.of("memory")
	if err != nil {
		return nil, err
	}
	usage, limit, total := "memory.current", "memory.max", ""
	if !h.unified {
		usage, limit, total = "memory.usage_in_bytes", "memory.limit_in_bytes", "total_" // with the groups below
	}
	groups, err := h.consumers(ctx, at, h.base, usage)
	if err == nil && len(groups) == 0 {
		err = fmt.Errorf("no control group has %s", usage)
	}
	return heaviest(groups, func(g *Consumer) bool {
		at.enter("%s", g.Dir)
		if g.Max, _ = readUint(h.root, g.Dir, limit); g.Max >= noMemoryLimit {
			g.Max = 0
		}
		stat, err := readSmall(h.root, g.Dir, "memory.stat")
		idle, _ := numberAfter(stat, total+"inactive_file")
		g.Current -= min(idle, g.Current)
		g.Shmem, _ = numberAfter(stat, total+"shmem")
		return err == nil // else removed meanwhile
	}), err
}

// tasks returns the groups with most processes and threads below one, or of all.
func (fs *CgroupFS) tasks(ctx context.Context, at *position, below string) ([]Consumer, error) {
	h, err := fs.of("pids")
	if err != nil {
		return nil, err
	}
	groups, err := h.consumers(ctx, at, cmp.Or(below, h.base), "pids.current")
	return heaviest(groups, func(g *Consumer) bool {
		g.Max, _ = readUint(h.root, g.Dir, "pids.max")
		return true
	}), err
}

// consumers returns the groups below one in which a file holds a number above 0.
func (h *hierarchy) consumers(ctx context.Context, at *position, below, file string) (list []Consumer, _ error) {
	return list, h.eachOwner(ctx, at, below, func(g group) {
		if n, err := readUint(h.root, g.dir, file); err == nil && n > 0 {
			list = append(list, Consumer{Path: g.path, Dir: g.dir, Usage: Usage{Current: n}, Owner: OwnerOfCgroup(g.path)})
		}
	})
}

// stalled returns the groups that wait for memory.
func (fs *CgroupFS) stalled(ctx context.Context, at *position) ([]StalledGroup, error) {
	h, err := fs.of("")
	if err != nil {
		return nil, errors.New("control groups of version 1 do not show who waits for memory")
	}
	var list []StalledGroup
	err = h.eachOwner(ctx, at, h.base, func(g group) {
		s, err := readStall(filepath.Join(h.root, g.dir, "memory.pressure"))
		if err == nil && s.Full.Avg10 > 0 {
			list = append(list, StalledGroup{Path: g.path, Dir: g.dir, Full: s.Full, Owner: OwnerOfCgroup(g.path)})
		}
	})
	return top(list, mostConsumers, func(a, b StalledGroup) int {
		return cmp.Or(cmp.Compare(b.Full.Avg10, a.Full.Avg10), cmp.Compare(a.Path, b.Path))
	}), err
}

// members returns the processes in a group and below it.
func (fs *CgroupFS) members(ctx context.Context, at *position, cgroup string) (map[int]bool, error) {
	h, err := fs.of("pids")
	if err != nil {
		return nil, err
	}
	var members map[int]bool
	err = h.each(ctx, at, func(g group) {
		if !below(g.path, cgroup) {
			return
		}
		if members == nil {
			members = map[int]bool{}
		}
		pids, _ := readLimited(filepath.Join(h.root, g.dir, "cgroup.procs"), maxMembers)
		for field := range strings.FieldsSeq(pids) {
			if pid, err := strconv.Atoi(field); err == nil {
				members[pid] = true
			}
		}
	})
	if err == nil && members == nil {
		err = fmt.Errorf("there is no control group %s", cgroup)
	}
	return members, err
}

// heaviest returns the three pods that have most, and the three of the others. Complete reads what else there is to
// know of a group, which may make it lighter and never heavier; it is done for as few as that takes, since the kernel
// adds up memory.stat only when it is read.
func heaviest(groups []Consumer, complete func(*Consumer) bool) []Consumer {
	byCurrent := func(a, b Consumer) int {
		return cmp.Or(cmp.Compare(b.Current, a.Current), cmp.Compare(a.Path, b.Path))
	}
	slices.SortFunc(groups, byCurrent)
	var pods, others []Consumer
	for _, g := range groups {
		list := &others
		if g.PodUID != "" {
			list = &pods
		}
		full := len(*list) == mostConsumers
		if (!full || g.Current > (*list)[mostConsumers-1].Current) && complete(&g) {
			*list = top(append(*list, g), mostConsumers, byCurrent)
		}
	}
	list := append(pods, others...)
	slices.SortFunc(list, byCurrent)
	return list
}

// resident returns the processes with most resident memory.
func (p Population) resident() []ResidentMemory {
	var list []ResidentMemory
	for pid, st := range p.all {
		if st.rss > 0 {
			list = append(list, ResidentMemory{PID: pid, Name: st.comm, Bytes: uint64(st.rss)})
		}
	}
	return top(list, mostConsumers, func(a, b ResidentMemory) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), a.PID-b.PID)
	})
}

// processGroups groups processes by name, all or the members of a group. A leak of threads is one process, a broken
// server one parent of many, a fork bomb one name with parents of the same.
func (p Population) processGroups(members map[int]bool) []ProcessGroup {
	byName := map[string][]stat{}
	for pid, st := range p.all {
		name := st.comm
		if st.kernel {
			name = kernelThreads
		}
		if members == nil || members[pid] {
			byName[name] = append(byName[name], st)
		}
	}
	var list []ProcessGroup
	for name, processes := range byName {
		c := ProcessGroup{Name: name, Processes: len(processes), PID: processes[0].pid}
		if len(processes) > 1 {
			c.PID = commonParent(processes, members)
			c.Parent = p.all[c.PID].comm
		}
		for _, st := range processes {
			c.Threads += max(st.threads, 1)
		}
		list = append(list, c)
	}
	return top(list, mostConsumers, func(a, b ProcessGroup) int {
		return cmp.Or(b.Threads-a.Threads, cmp.Compare(a.Name, b.Name))
	})
}

// commonParent returns the parent of more than half of the processes, one of the members of a group if those are given;
// 0 for none. Process 1 is none: it gets all whose parent has ended, such as every shim.
func commonParent(processes []stat, members map[int]bool) int {
	children := map[int]int{}
	for _, st := range processes {
		if children[st.ppid]++; 2*children[st.ppid] > len(processes) && st.ppid != 1 &&
			(members == nil || members[st.ppid]) {
			return st.ppid
		}
	}
	return 0
}
