package host

import (
	"cmp"
	"os"
	"slices"
)

// mostHolders is how many of a kind are named: pods, other groups, processes, names of processes.
const mostHolders = 3

// kernelThreads is the name of the crowd of the kernel's own threads, each of which has another one.
const kernelThreads = "kernel threads"

// resident returns the processes with most resident memory.
func (p Population) resident() []ResidentMemory {
	var list []ResidentMemory
	for pid, st := range p.all {
		if st.rss > 0 {
			list = append(list, ResidentMemory{PID: pid, Name: st.comm, Bytes: st.rss * uint64(os.Getpagesize())})
		}
	}
	slices.SortFunc(list, func(a, b ResidentMemory) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), a.PID-b.PID) })
	return list[:min(len(list), mostHolders)]
}

// crowds groups processes by name, all or the members of a group. A leak of threads is one process, a broken server one parent
// of many, a fork bomb one name with parents of the same.
func (p Population) crowds(members map[int]bool) []Crowd {
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
	var list []Crowd
	for name, processes := range byName {
		c := Crowd{Name: name, Processes: len(processes), PID: processes[0].pid}
		if len(processes) > 1 {
			c.PID = commonParent(processes)
			c.Parent = p.all[c.PID].comm
		}
		for _, st := range processes {
			c.Threads += max(st.threads, 1)
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Crowd) int { return cmp.Or(b.Threads-a.Threads, cmp.Compare(a.Name, b.Name)) })
	return list[:min(len(list), mostHolders)]
}

// commonParent returns the parent of more than half of the processes, 0 for none.
func commonParent(processes []stat) int {
	children := map[int]int{}
	for _, st := range processes {
		if children[st.ppid]++; 2*children[st.ppid] > len(processes) {
			return st.ppid
		}
	}
	return 0
}
