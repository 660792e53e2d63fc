package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl/proc"
)

const (
	// maxThreads bounds the threads of one process that are read.
	maxThreads = 512
	// settled is the age from which the role of a process does not change: it has its last program and its sockets.
	settled = time.Minute
)

// A Process is a process with a role.
type Process struct {
	PID      int
	PPID     int
	Name     string // comm, such as "containerd-shim"
	Role     Role
	ObjectID string    // sandbox or container id that it serves; empty for daemons
	State    byte      // as in /proc/PID/stat: R S D T t Z I
	Wchan    string    // kernel function that it waits in; empty when not known or not waiting
	Started  time.Time // zero when not known
	Config   string    // configuration file on the command line of a runtime; empty for the default, or when not known
	Threads  int
	Tracer   int // process that traces it while it is stopped for that; 0 for none
	// Work is the operation of a process that should end by itself soon: create or kill of an OCI runtime, start or
	// delete of a shim, ADD or DEL of a CNI plugin; empty for all others.
	Work string
	// Serves is the sandbox or container of the operation, if a CNI plugin's environment or an OCI bundle names it. A
	// shim has it only while it has no child.
	Serves Object
	// Address and Namespace belong to the containerd that a shim was started by, also for what the shim started.
	Address, Namespace string
	Program            string // the base name of a shim's program, also for what the shim started
	// Unit is the systemd unit of a kubelet, by its control group, where several processes are called so.
	Unit string `json:",omitempty"`
	// Daemon is the runtime's daemon that started it, or that started what started it; 0 when that is not known. Of a
	// child of the runtime or the kubelet that waits to begin its program, it is the parent.
	Daemon int
	// Sockets are the paths at which a runtime's daemon accepts connections, in its mount namespace, MountNS.
	Sockets []string
	MountNS string
	// Umask is the umask of a runtime's daemon; 0 for other processes, and where it is not known.
	Umask uint64 `json:",omitempty"`

	// Lasting is set when two reads some time apart agree: uninterruptible sleep in the same place. One read proves
	// nothing, since every user of a busy disk is in that state for moments.
	Lasting bool
}

// StateWord returns the process state in words, such as "stopped" or "uninterruptible sleep".
func (p Process) StateWord() string {
	word, ok := map[byte]string{
		'R': "running", 'S': "sleeping", 'D': "uninterruptible sleep", 'T': "stopped", 't': "stopped by a tracer",
		'Z': "zombie", 'I': "idle",
	}[p.State]
	if !ok {
		return "state " + string(rune(p.State))
	}
	return word
}

// A Population is the processes of a node at one moment, and which of them have a role. It is read once in a run, and
// every reader that needs processes filters it. The zero value is a population that could not be read.
type Population struct {
	root    string
	names   Names
	boot    time.Time // zero when not known
	at      time.Time // when it was read
	all     map[int]stat
	roles   map[int]Process
	missing error // why some roles are not known
}

// ReadPopulation reads stat of every process, which no lock can delay, and then the command lines of those that may
// have a role. Processes inside containers have none unless they serve a container: a containerd in a pod is not this
// node's.
//
// Reading the command line of a process whose memory map is locked never returns. So processes in uninterruptible sleep
// get their roles by name alone, and so do all that were not reached within gatherTimeout: the error names where the
// reader was abandoned. Processes that vanish or may not be read are left out, without an error.
//
// A service passes the population that it has read before, others the zero value: of a process that is still there only
// the state is read again.
func ReadPopulation(ctx context.Context, root string, names Names, before Population) (Population, error) {
	p, err := within(ctx, "listing processes", func(at *position) (Population, error) {
		return listProcesses(ctx, at, root)
	})
	if err != nil {
		before.missing = err
		return before, err
	}
	p.names = names
	all, roles, order := p, map[int]Role{}, p.order() // a goroutine that is abandoned goes on with them
	identify := func(st stat, argv []string) (Role, string) {
		role, id := names.identify(st.comm, argv, roles[st.ppid])
		if role == RoleShim && roles[st.ppid] == RoleShim && st.state == 'D' {
			role = RoleOCI // whose program it waits to begin
		}
		if all.foreign(st, role, roles) {
			role = ""
		}
		roles[st.pid] = role
		return role, id
	}
	byName := map[int]Role{}
	for _, st := range order {
		if role, _ := identify(st, nil); role != "" {
			byName[st.pid] = role
		}
	}
	found, err := gather(ctx, "reading processes", order, func(at *position, st stat) (*Process, bool) {
		if known, ok := before.known(st); ok && before.missing == nil {
			if roles[st.pid] = known.Role; known.Role == "" {
				return nil, true
			}
			known = all.refreshed(known, st)
			return &known, true
		}
		parent := roles[st.ppid]
		if st.state == 'D' || names.role(st.comm) == "" && (parent == "" || parent == RoleKubelet) {
			return nil, false
		}
		at.enter("cmdline of process %d (%s)", st.pid, st.comm)
		argv := nulSeparated(all.dir(st.pid), "cmdline")
		role, id := identify(st, argv)
		var plugin call
		if role == RoleCNI || role == "" && (parent == RoleRuntime || parent == RoleCNI) {
			at.enter("environ of process %d (%s)", st.pid, st.comm)
			plugin = pluginCall(nulSeparated(all.dir(st.pid), "environ"))
			if id = plugin.serves.ID; plugin.work != "" {
				role = RoleCNI
				roles[st.pid] = role
			}
		}
		if role == "" && parent == RoleShim && all.isHelper(at, st) {
			role = RoleOCI
			roles[st.pid] = role
		}
		if role == "" {
			return nil, true
		}
		found := all.describe(st, role, id)
		found.Work, found.Serves = plugin.work, plugin.serves
		all.detail(at, &found, argv)
		return &found, true
	})
	for _, st := range order { // a process that was not reached keeps its former role, or has one by its name
		if process, ok := found[st]; process != nil {
			p.roles[st.pid] = *process
		} else if was, known := before.known(st); !ok && known && was.Role != "" {
			p.roles[st.pid] = p.refreshed(was, st)
		} else if role := byName[st.pid]; !ok && role != "" {
			p.roles[st.pid] = p.describe(st, role, "")
		}
	}
	p.inherit()
	p.setUnits(ctx)
	p.missing = errors.Join(err, p.hidden())
	return p, p.missing
}

// known returns a process as it was read before, if only its state can have changed since. The zero value has no role.
func (p Population) known(now stat) (Process, bool) {
	was, started := p.all[now.pid], p.started(now.start)
	same := was.start == now.start && was.ppid == now.ppid && was.comm == now.comm
	return p.roles[now.pid], same && !started.IsZero() && p.at.Sub(started) >= settled
}

// refreshed returns a known process with its present state.
func (p Population) refreshed(known Process, st stat) Process {
	now := p.describe(st, known.Role, known.ObjectID)
	known.State, known.Wchan, known.Threads, known.Tracer = now.State, now.Wchan, now.Threads, now.Tracer
	return known
}

// detail adds facts from the arguments of a process, and the sockets of a runtime's daemon.
func (p Population) detail(at *position, found *Process, argv []string) {
	switch found.Role {
	case RoleRuntime:
		if file := flagValue(argv, "c", "config"); filepath.IsAbs(file) { // containerd and CRI-O share these
			found.Config = file
		}
		at.enter("sockets of process %d (%s)", found.PID, found.Name)
		found.Sockets = p.listens(found.PID)
		if found.Name == "cri-dockerd" {
			renamed(found.Sockets, cmp.Or(flagValue(argv, "container-runtime-endpoint"), "/var/run/cri-dockerd.sock"))
		}
		found.MountNS = proc.Namespace(p.dir(found.PID), "mnt")
	case RoleShim:
		found.Address, found.Namespace = flagValue(argv, "address"), flagValue(argv, "namespace")
		if len(argv) > 0 {
			found.Program = filepath.Base(argv[0])
			found.Work = workOf(argv[len(argv)-1:], shimWork)
		}
		if found.Work == "" && p.childless(found.PID) { // it has started nothing, or what it started has ended
			at.enter("the bundle of process %d (%s)", found.PID, found.Name)
			cwd, _ := os.Readlink(filepath.Join(p.dir(found.PID), "cwd"))
			bundle := cmp.Or(flagValue(argv, "b", "bundle"), cwd)
			config, _ := readUntrusted(p.root, filepath.Join(bundle, "config.json"), maxSpec)
			found.Serves, _ = parseBundle(found.ObjectID, config)
		}
		if strings.HasPrefix(flagValue(argv, "n", "name"), "k8s_") { // conmon, which has no namespaces
			found.Namespace = "k8s.io"
		}
	case RoleOCI:
		found.Work = workOf(argv, ociWork)
		bundle, id := flagValue(argv, "bundle", "b"), found.ObjectID
		cwd, _ := os.Readlink(filepath.Join(p.dir(found.PID), "cwd"))
		if bundle == "" && strings.Contains(cwd, "/"+taskDir+"/") { // the sandbox's, in which its shim works
			bundle, id = cwd, filepath.Base(cwd)
			found.ObjectID = cmp.Or(found.ObjectID, id)
		}
		// A process in a pod may have any name, and name any path.
		if filepath.IsAbs(bundle) && id != "" && !proc.Apart(p.dir(found.PID), p.dir(1), "mnt") {
			at.enter("the bundle of process %d (%s)", found.PID, found.Name)
			config, _ := readUntrusted(p.root, filepath.Join(bundle, "config.json"), maxSpec)
			found.Serves, _ = parseBundle(id, config)
		}
	}
}

// childless reports whether a process has no child.
func (p Population) childless(pid int) bool {
	for _, st := range p.all {
		if st.ppid == pid {
			return false
		}
	}
	return true
}

func listProcesses(ctx context.Context, at *position, root string) (Population, error) {
	p := Population{root: root, at: time.Now(), all: map[int]stat{}, roles: map[int]Process{}}
	dir := filepath.Join(root, "proc")
	at.enter("the list of processes in %s", dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return p, fmt.Errorf("listing processes: %w", err)
	}
	p.boot = bootTime(root)
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return p, fmt.Errorf("reading %s: cut short: %w", dir, err)
		}
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if st, err := readStat(filepath.Join(dir, e.Name())); err == nil {
			p.all[st.pid] = st
		}
	}
	return p, nil
}

// bootTime returns when the host was started; zero when that is not known.
func bootTime(root string) time.Time {
	text, _ := readLimited(filepath.Join(root, "proc/stat"), 1<<20)
	if boot, ok := numberAfter(text, "btime"); ok {
		return time.Unix(int64(boot), 0)
	}
	return time.Time{}
}

// dir is the folder of a process.
func (p Population) dir(pid int) string { return proc.Dir(p.root, pid) }

// Processes returns the processes that have a role, by process id.
func (p Population) Processes() []Process { return p.of(byWorth()...) }

// Again reads the processes that have a role once more, and marks those whose uninterruptible sleep lasts. What could
// not be read again before ctx ended is as it was at first, with an error.
func (p Population) Again(ctx context.Context) ([]Process, error) {
	if p.all == nil {
		return nil, p.gap()
	}
	var list []Process
	for _, was := range p.Processes() {
		now := was
		if ctx.Err() == nil { // none of these files waits for the process
			st, err := readStat(p.dir(was.PID))
			if err != nil || st.start != p.all[was.PID].start {
				continue // ended meanwhile
			}
			now.Name, now.PPID, now.State, now.Tracer = st.comm, st.ppid, st.state, p.tracer(st)
			if now.State != was.State || now.State == 'D' { // else it most likely waits where it did
				now.Wchan = wchan(p.dir(was.PID))
			}
			now.Lasting = now.State == 'D' && was.State == 'D' && now.Wchan == was.Wchan
		}
		list = append(list, now)
	}
	return list, errors.Join(p.missing, ctx.Err())
}

// One returns what /proc/PID/stat holds of a process, with its role by its name and its place alone. It never waits for
// the process.
func (p Population) One(pid int) (Process, error) {
	st, err := readStat(p.dir(pid))
	if err != nil {
		return Process{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	roles := map[int]Role{}
	for pid, known := range p.roles {
		roles[pid] = known.Role
	}
	role, _ := p.names.identify(st.comm, nil, "")
	if p.foreign(st, role, roles) {
		role = ""
	}
	return p.describe(st, role, ""), nil
}

// describe returns a process as far as it can be read without waiting for it.
func (p Population) describe(st stat, role Role, id string) Process {
	process := Process{
		PID: st.pid, PPID: st.ppid, Name: st.comm, Role: role, ObjectID: id, State: st.state,
		Wchan: wchan(p.dir(st.pid)), Started: p.started(st.start), Threads: st.threads, Tracer: p.tracer(st),
	}
	if role == RoleRuntime {
		process.Umask, _ = strconv.ParseUint(strings.Join(status(p.dir(st.pid), "Umask"), ""), 8, 9)
	}
	return process
}

// tracer returns the process that holds one in a tracing stop, 0 for any other state.
func (p Population) tracer(st stat) int {
	if st.state != 't' {
		return 0
	}
	status, _ := readSmall(p.dir(st.pid), "status")
	pid, _ := numberAfter(status, "TracerPid:")
	return int(pid)
}

// threads returns the folders of up to maxThreads threads of a process.
func (p Population) threads(pid int) []string {
	task := filepath.Join(p.dir(pid), "task")
	list := names(task)
	list = list[:min(len(list), maxThreads)]
	for i, tid := range list {
		list[i] = filepath.Join(task, tid)
	}
	return list
}

// nulSeparated reads the arguments or the environment of a process, which can block.
func nulSeparated(dir, file string) []string {
	text, _ := readLimited(filepath.Join(dir, file), 1<<20)
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
}

// started converts ticks after boot; zero when the time of boot is not known.
func (p Population) started(ticks uint64) time.Time {
	if p.boot.IsZero() {
		return time.Time{}
	}
	return p.boot.Add(time.Duration(ticks) * (time.Second / userHZ))
}

// order returns the processes with parents before their children, and those in uninterruptible sleep after all others.
func (p Population) order() []stat {
	return p.sorted(func(st stat) int {
		depth := len(p.ancestors(st))
		if st.state == 'D' {
			depth += 1000
		}
		return depth
	})
}

// byWorth returns the processes in the order in which they are worth reading: those with a role, others, and kernel
// threads.
func (p Population) byWorth() []stat {
	roles := byWorth()
	return p.sorted(func(st stat) int {
		switch i := slices.Index(roles, p.roles[st.pid].Role); {
		case i >= 0:
			return i
		case st.kernel:
			return len(roles) + 1
		}
		return len(roles)
	})
}

// alive returns the processes that have files and memory, in that order: no threads of the kernel, and no zombies.
func (p Population) alive() (pids []int) {
	for _, st := range p.byWorth() {
		if !st.kernel && (st.state != 'Z' && st.state != 'X' || st.threads > 1) {
			pids = append(pids, st.pid)
		}
	}
	return pids
}

func byWorth() []Role { return []Role{RoleRuntime, RoleKubelet, RoleShim, RoleOCI, RoleCNI} }

func (p Population) sorted(rank func(stat) int) []stat {
	ranks := make(map[int]int, len(p.all))
	for pid, st := range p.all {
		ranks[pid] = rank(st)
	}
	return slices.SortedFunc(maps.Values(p.all), func(a, b stat) int {
		return cmp.Or(ranks[a.pid]-ranks[b.pid], a.pid-b.pid)
	})
}

// ancestors returns the parents of a process, nearest first. Process ids are read one after the other, so a reused id
// could close a circle; no chain is longer than 64.
func (p Population) ancestors(st stat) []stat {
	var chain []stat
	for len(chain) < 64 {
		parent, ok := p.all[st.ppid]
		if !ok || parent.pid == st.pid {
			break
		}
		chain = append(chain, parent)
		st = parent
	}
	return chain
}

// isHelper reports whether a child of runc's shim works for the shim: it is not in the mount namespace of a container.
// It is an OCI runtime, whatever it is called; a wrapper may have become another program. Other shims (Kata, gVisor)
// have helpers that live as long as the container does.
func (p Population) isHelper(at *position, st stat) bool {
	at.enter("cmdline of process %d (%s)", st.ppid, p.all[st.ppid].comm)
	argv := nulSeparated(p.dir(st.ppid), "cmdline")
	if len(argv) == 0 || filepath.Base(argv[0]) != "containerd-shim-runc-v2" {
		return false
	}
	own := proc.Namespace(p.dir(st.pid), "mnt")
	return own != "" && own == proc.Namespace(p.dir(st.ppid), "mnt")
}

// shimOf returns the shim that a process is below of; 0 for none, and for a thread that is not its process's first.
func (p Population) shimOf(pid int) int {
	for _, above := range p.ancestors(p.all[pid]) {
		if p.roles[above.pid].Role == RoleShim {
			return above.pid
		}
	}
	return 0
}

// A call is the operation that a process was started for, and its sandbox or container.
type call struct {
	work   string
	serves Object
}

// pluginCall reads the call of a CNI plugin from its environment, which holds the pod's names and none of the pod's
// environment; the zero value for the environment of any other program.
//
//	CNI_COMMAND=ADD CNI_CONTAINERID=<sandbox> CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=cart-1
func pluginCall(environ []string) (c call) {
	values := map[string]string{}
	for _, kv := range environ {
		if args, ok := strings.CutPrefix(kv, "CNI_ARGS="); ok {
			for arg := range strings.SplitSeq(args, ";") {
				key, value, _ := strings.Cut(arg, "=")
				values[key] = value
			}
		}
		key, value, _ := strings.Cut(kv, "=")
		values[key] = value
	}
	c.work = workOf([]string{values["CNI_COMMAND"]}, cniWork)
	if id := values["CNI_CONTAINERID"]; plausibleID(id) {
		c.serves = Object{
			Kind: KindPodSandbox, ID: id, Namespace: values["K8S_POD_NAMESPACE"], Pod: values["K8S_POD_NAME"],
			PodUID: values["K8S_POD_UID"],
		}
	}
	return c
}

// inherit gives processes the object and the runtime of their parents. An OCI runtime's without an object has that of
// the nearest OCI runtime or shim: "runc init" is the child of "runc create ID" or "runc exec ID", and the arguments of
// one in uninterruptible sleep were not read, nor were those of a shim in it. What a shim started serves its
// containerd.
func (p Population) inherit() {
	for _, st := range p.sorted(func(st stat) int { return len(p.ancestors(st)) }) {
		process, ok := p.roles[st.pid]
		above, child := p.roles[st.ppid]
		if process.Role == RoleShim && process.ObjectID == "" { // its working directory is its bundle
			cwd, _ := os.Readlink(filepath.Join(p.dir(st.pid), "cwd"))
			if _, bundle, found := strings.Cut(cwd, "/"+taskDir+"/"); found {
				process.Namespace, process.ObjectID, _ = strings.Cut(bundle, "/")
				p.roles[st.pid] = process
			}
		}
		if ok && child && st.state == 'D' && process.Role == above.Role && process.Name == above.Name {
			process.Daemon = above.PID
			p.roles[st.pid] = process
		}
		if !ok || !child || process.Role == RoleRuntime || process.Role == RoleKubelet {
			continue
		}
		if process.Role == RoleOCI && (above.Role == RoleOCI || above.Role == RoleShim) {
			process.ObjectID = cmp.Or(process.ObjectID, above.ObjectID)
		}
		process.Daemon = above.Daemon
		if above.Role == RoleRuntime {
			process.Daemon = above.PID
		} else if process.Role != RoleShim {
			process.Address, process.Namespace, process.Program = above.Address, above.Namespace, above.Program
			process.Serves = cmp.Or(process.Serves, above.Serves)
		}
		p.roles[st.pid] = process
	}
}

// setUnits tells the kubelets apart, where there are several.
func (p Population) setUnits(ctx context.Context) {
	kubelets, owners, pids := p.of(RoleKubelet), map[int]*Owner{}, map[*Owner]int{}
	if len(kubelets) < 2 {
		return
	}
	for _, k := range kubelets {
		owners[k.PID] = &Owner{}
		pids[owners[k.PID]] = k.PID
	}
	_ = p.setOwners(ctx, pids) // else their units are not known
	for _, k := range kubelets {
		k.Unit = owners[k.PID].Unit
		p.roles[k.PID] = k
	}
}

// cgroups reads the control groups of a process, which can block.
func (p Population) cgroups(at *position, pid int) []membership {
	at.enter("the cgroup of process %d (%s)", pid, p.all[pid].comm)
	text, _ := readSmall(p.dir(pid), "cgroup")
	return parseMemberships(text)
}

// gap returns why the processes are not all known; nil when they are.
func (p Population) gap() error {
	if p.all == nil {
		return cmp.Or(p.missing, errors.New("the processes could not be listed"))
	}
	return p.missing
}

// daemons returns the processes of the runtime and the kubelet, by process id.
func (p Population) daemons() []Process { return p.of(RoleRuntime, RoleKubelet) }

// of returns the processes of some roles, by process id.
func (p Population) of(roles ...Role) []Process {
	var list []Process
	for _, process := range p.roles {
		if slices.Contains(roles, process.Role) {
			list = append(list, process)
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return a.PID - b.PID })
	return list
}

// setOwners sets each owner of a process by the process's role, and by its cgroups as far as those can be read.
func (p Population) setOwners(ctx context.Context, pids map[*Owner]int) error {
	each := slices.Compact(slices.Sorted(maps.Values(pids)))
	owners, err := gather(ctx, "reading the control groups of processes", each, func(at *position, pid int) (Owner, bool) {
		return ownerOfCgroups(p.cgroups(at, pid)), !p.all[pid].kernel
	})
	for owner, pid := range pids {
		*owner = owners[pid]
		known := p.roles[pid]
		owner.Role, owner.ObjectID = known.Role, cmp.Or(known.ObjectID, owner.ObjectID)
	}
	return err
}
