package host

import (
	"context"
	"errors"
)

// A Shortage is what a node is short of.
type Shortage struct {
	Memory  bool
	Stalled bool // there is memory on the node, and somebody waits for it all the same
	PIDs    bool
	// Below is the control group whose limit on processes is reached; empty for a limit of the whole node.
	Below string
}

// Holders are who has most of what is short; of what is not, the lists are empty.
type Holders struct {
	Memory   []Holder         // pods, and groups that belong to none, three of each; most first
	Resident []ResidentMemory // processes, most first
	Stalled  []StalledGroup   // pods and others that wait for memory, most first
	PIDs     []Holder         // as Memory
	Crowds   []Crowd          // processes by name, most threads first
}

// A Holder is a control group with what is in it and below it: of memory the working set in bytes, as the kubelet counts it, of
// processes their threads too. Max is the limit of the group itself.
type Holder struct {
	Path string // as in /proc/PID/cgroup
	Dir  string // the folder of its files on the host, such as /sys/fs/cgroup/memory/kubepods/pod1b2c
	Usage
	Shmem uint64 // of memory, in bytes: what is in tmpfs or shared
	Files uint64 // of memory, in bytes: pages of files that were used lately, which the kernel can drop all the same
	Owner
}

// A StalledGroup is a control group in which at times nobody runs for want of memory.
type StalledGroup struct {
	Path string
	Dir  string   // as of a Holder
	Full Averages // memory.pressure, which version 2 has, and a hybrid for what is in its unified hierarchy
	Owner
}

// A ResidentMemory is the part of a process's memory that is not swapped out (RSS).
type ResidentMemory struct {
	PID   int
	Name  string
	Bytes uint64
	Owner
}

// A Crowd is the processes of one name, or all threads of the kernel's own.
type Crowd struct {
	Name               string
	Processes, Threads int
	// PID is the one process, or the parent of more than half of several; 0 where there is none. The owner is that one's.
	PID    int
	Parent string // the name of that parent
	Owner
}

// ReadHolders finds who has most of what a node is short of. With an error there may be a part of it.
func ReadHolders(ctx context.Context, root string, people Population, short Shortage) (Holders, error) {
	var h Holders
	errs := []error{people.gap()}
	if short.Memory {
		groups, err := gathered(ctx, func(ctx context.Context, at *position) ([]Holder, error) {
			return readMemoryHolders(ctx, at, root)
		})
		h.Memory, h.Resident = groups, people.resident()
		errs = append(errs, err)
	}
	if short.Stalled {
		groups, err := gathered(ctx, func(ctx context.Context, at *position) ([]StalledGroup, error) {
			return readStalled(ctx, at, root)
		})
		h.Stalled = groups
		errs = append(errs, err)
	}
	if short.PIDs {
		groups, err := gathered(ctx, func(ctx context.Context, at *position) ([]Holder, error) {
			return readPIDHolders(ctx, at, root, short.Below)
		})
		members, unknown := gathered(ctx, func(ctx context.Context, at *position) (map[int]bool, error) {
			return readMembers(ctx, at, root, short.Below)
		})
		h.PIDs = groups
		if unknown == nil {
			h.Crowds = people.crowds(members)
		}
		errs = append(errs, err, unknown)
	}
	errs = append(errs, people.own(ctx, &h))
	return h, errors.Join(errs...)
}

// gathered makes a look that gets gatherPatience, so that the next one has its time too.
func gathered[T any](ctx context.Context, look func(ctx context.Context, at *position) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, gatherPatience)
	defer cancel()
	return within(ctx, func(at *position) (T, error) { return look(ctx, at) })
}

// own says whose the processes are.
func (p Population) own(ctx context.Context, h *Holders) error {
	var pids []int
	for _, r := range h.Resident {
		pids = append(pids, r.PID)
	}
	for _, c := range h.Crowds {
		if c.PID > 0 {
			pids = append(pids, c.PID)
		}
	}
	owners, err := p.owners(ctx, pids)
	for i := range h.Resident {
		h.Resident[i].Owner = owners[h.Resident[i].PID]
	}
	for i := range h.Crowds {
		h.Crowds[i].Owner = owners[h.Crowds[i].PID]
	}
	return err
}
