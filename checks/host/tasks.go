package host

import "time"

// An Owner is whom a process belongs to.
type Owner struct {
	Role     Role   // what it is to the runtime; empty for any other process
	ObjectID string // sandbox or container id; empty for a process of the host
	PodUID   string
	Unit     string // systemd's unit from its cgroup, such as containerd.service; empty when not known
}

// A BlockedTask is a thread in uninterruptible sleep in two looks some time apart, in the same place.
type BlockedTask struct {
	PID, TID int
	Name     string
	Kernel   bool     // a kernel thread
	Wchan    string   // kernel function that it waits in
	Stack    []string // functions from /proc/PID/task/TID/stack, innermost first, without addresses; nil when it may not be read
	Started  time.Time
	Owner
}

// Tasks is what the host's processes look like as a whole.
type Tasks struct {
	Processes, Threads int
	Blocked            []BlockedTask // lasting; those of the runtime, the kubelet, shims and containers first
	BlockedMore        int           // beyond those in Blocked: lasting, or too many to be looked at twice
	BlockedMoments     int           // in uninterruptible sleep in the first look only, or elsewhere by the second: a busy disk, not a hang
	Unread             int           // processes whose threads were not looked at one by one, or not all
	Zombies            int
	ZombiesByParent    []ZombieParent // most first, bounded
	Stopped            []Process      // runtime, kubelet, shims in state T
}

// A ZombieParent is a process that does not wait for its children.
type ZombieParent struct {
	PID   int
	Name  string
	Count int
	Owner
}
