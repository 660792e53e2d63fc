package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// How long a look waits for what may hang.
const (
	// rolePatience is for the command lines by which processes are told apart. A process that holds the lock of its own
	// memory map and sleeps keeps its readers waiting for as long.
	rolePatience = 2 * time.Second
	// gatherPatience is for the details of what was found, such as the cgroup of a process.
	gatherPatience = 2 * time.Second
	// lastMoment is for a look to hand in what it has when its time is up.
	lastMoment = 50 * time.Millisecond
)

// A position is what a look is reading; it may be left behind there.
type position struct {
	mu   sync.Mutex
	name string
}

func (p *position) enter(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = name
}

func (p *position) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.name, "its start")
}

// within runs a look in a goroutine of its own and waits for it no longer than ctx lives. One that does not end is left
// behind, and what it brings later goes nowhere: /proc/PID/cgroup and /proc/cgroups wait for the lock of all control
// groups, and the fdinfo of an inotify instance for the lock of its marks.
func within[T any](ctx context.Context, look func(at *position) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	at, done := &position{}, make(chan outcome, 1)
	go func() {
		value, err := look(at)
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastMoment)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.value, o.err
	case <-timer.C:
		var nothing T
		return nothing, fmt.Errorf("reading %s does not end: %w", at, ctx.Err())
	}
}

// gather asks about one key after the other in a goroutine that may be left behind, and returns what it has brought when
// gatherPatience is over. The error says what it was at.
func gather[K comparable, V any](ctx context.Context, keys []K, ask func(at *position, key K) V) (map[K]V, error) {
	var mu sync.Mutex
	brought := make(map[K]V, len(keys))
	ctx, cancel := context.WithTimeout(ctx, gatherPatience)
	defer cancel()
	_, err := within(ctx, func(at *position) (struct{}, error) {
		for _, key := range keys {
			value := ask(at, key)
			mu.Lock()
			brought[key] = value
			mu.Unlock()
		}
		return struct{}{}, nil
	})
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(brought), err
}

// A population is the processes of a node, and which of them have a role.
type population struct {
	scan  *scan
	all   map[int]stat
	roles map[int]Process
}

// readPopulation lists the processes. Roles that could not be told in time are missing, and the error says so.
func readPopulation(ctx context.Context, root string) (population, error) {
	s := newScan(root)
	s.timid = true
	if err := s.bounded(ctx, func() error { return s.list(ctx) }); err != nil {
		return population{}, err
	}
	roleCtx, cancel := context.WithTimeout(ctx, rolePatience)
	defer cancel()
	err := s.bounded(roleCtx, func() error { return s.roles(roleCtx) })
	p := population{scan: s, all: s.all, roles: map[int]Process{}}
	for _, process := range s.result() {
		p.roles[process.PID] = process
	}
	return p, err
}

// daemons returns the processes of the runtime and the kubelet, by process id.
func (p population) daemons() []Process {
	var list []Process
	for _, process := range p.roles {
		if process.Role == RoleRuntime || process.Role == RoleKubelet {
			list = append(list, process)
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return a.PID - b.PID })
	return list
}

// byWorth returns the processes in the order in which it is worth to look closer: the runtime, the kubelet, shims and what
// they run for the runtime, the processes of containers, the host's others, and kernel threads.
func (p population) byWorth() []stat {
	ranks := make(map[int]int, len(p.all))
	list := make([]stat, 0, len(p.all))
	for pid, st := range p.all {
		ranks[pid] = p.rank(st)
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b stat) int { return cmp.Or(ranks[a.pid]-ranks[b.pid], a.pid-b.pid) })
	return list
}

func (p population) rank(st stat) int {
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
func (p population) owners(ctx context.Context, pids []int) (map[int]Owner, error) {
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

// readUint reads a file that holds one number. The kernel's word for no limit, max, is 0.
func readUint(elem ...string) (uint64, error) {
	file := filepath.Join(elem...)
	b, err := readSmall(file)
	if err != nil {
		return 0, err
	}
	n, err := parseUint(b)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", file, err)
	}
	return n, nil
}

func parseUint(b []byte) (uint64, error) {
	text := string(bytes.TrimSpace(b))
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no number", text)
	}
	return n, nil
}

// readSmall reads a file of at most 64 KiB, which all that are read whole here are.
func readSmall(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return b, nil
}

// keyed finds the number after a key, as in the flat files of control groups:
//
//	nr_periods 10
//	nr_throttled 3
func keyed(b []byte, key string) (uint64, bool) {
	for line := range bytes.Lines(b) {
		value, ok := bytes.CutPrefix(line, []byte(key+" "))
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		return n, err == nil
	}
	return 0, false
}
