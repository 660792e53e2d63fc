package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// maxFrozen bounds the frozen cgroups that are kept: those near the root first, which freeze the others.
const maxFrozen = 200

// readFrozen finds the frozen cgroups of every hierarchy that can freeze: a hybrid has two.
func readFrozen(ctx context.Context, at *position, root string, all hierarchies) ([]FrozenCgroup, error) {
	var frozen []FrozenCgroup
	var failed error
	for _, h := range all.freezers() {
		look := readFreezer
		if h.unified {
			look = readFreeze
		}
		_, err := h.walk(ctx, at, root, func(cgroup, dir string) {
			state, ok := look(dir)
			if !ok || len(frozen) == maxFrozen {
				return
			}
			tasks := countTasks(dir, h.unified)
			if !state.self && tasks == 0 {
				return // it lies between one that is frozen itself and those with tasks
			}
			frozen = append(frozen, FrozenCgroup{Path: cgroup, Self: state.self, Freezing: !state.settled, Tasks: tasks, Owner: ownerOfCgroup(cgroup)})
		})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("looking for frozen cgroups: %w", err))
		}
	}
	return frozen, failed
}

func (all hierarchies) freezers() []hierarchy {
	var list []hierarchy
	if v1, ok := all.of("freezer"); ok && !v1.unified {
		list = append(list, v1)
	}
	if v2, ok := all.unified(); ok {
		list = append(list, v2)
	}
	return list
}

// A freeze is the state of a cgroup that is to stop.
type freeze struct {
	self    bool // by itself, not by one above it
	settled bool // all its tasks have stopped
}

// readFreezer reads the freezer of version 1.
func readFreezer(dir string) (freeze, bool) {
	state, err := readSmall(filepath.Join(dir, "freezer.state"))
	if err != nil {
		return freeze{}, false // the root has none
	}
	self, _ := readUint(dir, "freezer.self_freezing")
	return parseFreezer(state, self)
}

func parseFreezer(state []byte, self uint64) (freeze, bool) {
	switch string(bytes.TrimSpace(state)) {
	case "FROZEN":
		return freeze{self: self == 1, settled: true}, true
	case "FREEZING":
		return freeze{self: self == 1}, true
	}
	return freeze{}, false
}

// readFreeze reads the freezer of version 2, where a task in uninterruptible sleep keeps a cgroup from being frozen.
func readFreeze(dir string) (freeze, bool) {
	events, err := readSmall(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return freeze{}, false // the root has none
	}
	self, err := readUint(dir, "cgroup.freeze")
	if err != nil {
		return freeze{}, false // before Linux 5.2
	}
	return parseFreeze(events, self)
}

func parseFreeze(events []byte, self uint64) (freeze, bool) {
	frozen, _ := keyed(events, "frozen")
	f := freeze{self: self == 1, settled: frozen == 1}
	return f, f.self || f.settled
}
