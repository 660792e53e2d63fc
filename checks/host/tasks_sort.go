package host

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

const (
	maxParents = 10 // of zombies, that are named
	maxFrames  = 32 // of a stack, innermost first
	maxStopped = 50 // daemons and shims that are named
)

// summary counts processes and threads, and finds zombies and what is stopped. One look is enough for those.
func (p Population) summary() Tasks {
	t := Tasks{Processes: len(p.all)}
	parents := map[int]int{}
	for pid, st := range p.all {
		t.Threads += max(st.threads, 1)
		// While threads of it live, a process whose main thread has ended is no zombie that a parent could wait for.
		if st.state == 'Z' && st.threads <= 1 {
			t.Zombies++
			parents[st.ppid]++
		}
		role := p.roles[pid].Role
		if st.state == 'T' && (role == RoleRuntime || role == RoleKubelet || role == RoleShim) {
			t.Stopped = append(t.Stopped, p.roles[pid])
		}
	}
	slices.SortFunc(t.Stopped, func(a, b Process) int { return a.PID - b.PID })
	t.Stopped = t.Stopped[:min(len(t.Stopped), maxStopped)]
	for pid, count := range parents {
		t.ZombiesByParent = append(t.ZombiesByParent, ZombieParent{PID: pid, Name: p.all[pid].comm, Count: count})
	}
	slices.SortFunc(t.ZombiesByParent, func(a, b ZombieParent) int { return cmp.Or(b.Count-a.Count, a.PID-b.PID) })
	t.ZombiesByParent = t.ZombiesByParent[:min(len(t.ZombiesByParent), maxParents)]
	return t
}

// stayed reports whether a thread that sleeps in both looks has slept all the time in between.
func stayed(first, second suspect) bool {
	if first.counted && second.counted {
		return first.switches == second.switches
	}
	return first.Wchan == second.Wchan
}

// parseSwitches adds the two counts of context switches in /proc/PID/task/TID/status.
func parseSwitches(b []byte) (uint64, bool) {
	var sum uint64
	var found int
	for line := range bytes.Lines(b) {
		for _, key := range []string{"voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"} {
			value, ok := bytes.CutPrefix(line, []byte(key))
			if !ok {
				continue
			}
			n, err := parseUint(value)
			if err != nil {
				return 0, false
			}
			sum += n
			found++
		}
	}
	if found != 2 {
		return 0, false
	}
	return sum, true
}

// parseStack reads the functions of a kernel stack, without their addresses and offsets:
//
//	[<0>] wait_for_vfork_done+0x30/0x60
//	[<0>] rpc_wait_bit_killable+0x20/0xb0 [sunrpc]
func parseStack(b []byte) []string {
	var functions []string
	for line := range strings.Lines(string(b)) {
		_, frame, ok := strings.Cut(line, "] ")
		if !ok || len(functions) == maxFrames {
			continue
		}
		name, _, ok := strings.Cut(strings.TrimSpace(frame), "+0x")
		if ok && isSymbol(name) {
			functions = append(functions, name)
		}
	}
	return functions
}

// isSymbol reports whether s can be a function of the kernel, whose compilers append .isra.0 and the like.
func isSymbol(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.'
	})
}
