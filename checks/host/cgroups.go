package host

import "time"

// Cgroups is the state of the control groups.
type Cgroups struct {
	Version      int            // 1 or 2; 1 also for a hybrid
	Total        int            // cgroups: version 2 from cgroup.stat, version 1 the largest of /proc/cgroups, the dying among them
	ByController map[string]int // version 1: num_cgroups of /proc/cgroups
	Dying        int            // removed, yet held by memory that is still charged; -1 when the kernel does not say
	Frozen       []FrozenCgroup
	Throttled    []Throttling // runtime's and kubelet's, and those above them; only where there is a quota
}

// A FrozenCgroup is one whose tasks do not run.
type FrozenCgroup struct {
	Path string
	Self bool // frozen itself, not by a parent
	// Freezing says that not all its tasks have stopped yet: one in uninterruptible sleep keeps version 2 from it.
	Freezing bool
	Tasks    int // threads
	Owner
}

// Throttling is what the CPU controller took away from a cgroup between two looks at cpu.stat.
type Throttling struct {
	Path      string
	Quota     float64       // cores that it may use; 0 for no limit
	Periods   uint64        // periods that passed
	Throttled uint64        // of them, throttled
	Lost      time.Duration // time that its tasks waited
	Over      time.Duration // between the looks
	Owner
}
