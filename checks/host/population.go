package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// rolePatience is for the command lines by which processes are told apart. A process that holds the lock of its own memory
// map and sleeps keeps its readers waiting for as long.
const rolePatience = 2 * time.Second

// A Population is the processes of a node at one moment, and which of them have a role. It is read once for all looks that
// need it. The zero value is one that could not be read.
type Population struct {
	scan    *scan
	all     map[int]stat
	roles   map[int]Process
	missing error // why some roles are not known
}

// errNoPopulation is the error of a look that has no processes to look at.
var errNoPopulation = errors.New("the processes could not be listed")

// ReadPopulation lists the processes. Roles that could not be told in time are missing, and the error says so.
func ReadPopulation(ctx context.Context, root string) (Population, error) {
	s := newScan(root)
	s.timid = true
	if err := s.bounded(ctx, func() error { return s.list(ctx) }); err != nil {
		return Population{missing: err}, err
	}
	ctx, cancel := context.WithTimeout(ctx, rolePatience)
	defer cancel()
	err := errors.Join(s.bounded(ctx, func() error { return s.roles(ctx) }), Hidden(root))
	p := Population{scan: s, all: s.all, roles: map[int]Process{}, missing: err}
	for _, process := range s.result() {
		p.roles[process.PID] = process
	}
	return p, err
}

// gap says why not all is known of the processes; nil when it is.
func (p Population) gap() error {
	if p.scan == nil {
		return cmp.Or(p.missing, errNoPopulation)
	}
	return p.missing
}

// daemons returns the processes of the runtime and the kubelet, by process id.
func (p Population) daemons() []Process {
	var list []Process
	for _, process := range p.roles {
		if process.Role == RoleRuntime || process.Role == RoleKubelet {
			list = append(list, process)
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return a.PID - b.PID })
	return list
}

// shims returns the process ids of shims, in order: at most so many as say where they all are.
func (p Population) shims() []int {
	const most = 256
	var pids []int
	for pid, process := range p.roles {
		if process.Role == RoleShim {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids[:min(len(pids), most)]
}

// byWorth returns the processes in the order in which it is worth to look closer: the runtime, the kubelet, shims and what
// they run for the runtime, the processes of containers, the host's others, and kernel threads.
func (p Population) byWorth() []stat {
	ranks := make(map[int]int, len(p.all))
	list := make([]stat, 0, len(p.all))
	for pid, st := range p.all {
		ranks[pid] = p.rank(st)
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b stat) int { return cmp.Or(ranks[a.pid]-ranks[b.pid], a.pid-b.pid) })
	return list
}

func (p Population) rank(st stat) int {
	roles := []Role{RoleRuntime, RoleKubelet, RoleShim, RoleOCI, RoleCNI}
	if i := slices.Index(roles, p.roles[st.pid].Role); i >= 0 {
		return i
	}
	if st.kernel {
		return len(roles) + 2
	}
	if slices.ContainsFunc(p.scan.ancestors(st), func(a stat) bool { return p.roles[a.pid].Role == RoleShim }) {
		return len(roles)
	}
	return len(roles) + 1
}

// owners says whom processes belong to: by their role, and by their cgroups as far as those can be read.
func (p Population) owners(ctx context.Context, pids []int) (map[int]Owner, error) {
	owners, err := gather(ctx, pids, func(at *position, pid int) Owner {
		if p.all[pid].kernel {
			return Owner{}
		}
		at.enter(fmt.Sprintf("the cgroup of process %d (%s)", pid, p.all[pid].comm))
		return ownerOfCgroups(p.scan.read(filepath.Join(strconv.Itoa(pid), "cgroup"), maxArgs))
	})
	for _, pid := range pids {
		o, known := owners[pid], p.roles[pid]
		o.Role, o.ObjectID = known.Role, cmp.Or(known.ObjectID, o.ObjectID)
		owners[pid] = o
	}
	return owners, err
}
