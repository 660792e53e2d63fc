package host

import (
	"context"
	"errors"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/crictl/proc"
)

// maxProbed bounds the file systems that are probed, and the mounts that are returned.
const maxProbed = 500

// A Mount is one line of the host's mount table, with the result of probing it.
type Mount struct {
	Point   string
	Type    string // nfs4, fuse.s3fs, ext4, tmpfs, ...
	Source  string // server:/export, device, or a name
	Network bool   // answers depend on another machine or on a process: nfs, cifs, ceph, fuse, 9p, ...
	PodUID  string // from /var/lib/kubelet/pods/UID/...
	Driver  string // the plugin: kubernetes.io~csi, kubernetes.io~nfs, ...
	PID     int    // a process in whose mount namespace it is; 0 for the host's
	Inside  Owner  // of that process

	Asked   bool
	Err     string        // an error that it answered: stale file handle, ...
	Hung    bool          // no answer in time
	Waiting time.Duration // how long a hung one has kept a probe of this or an earlier run, or a slow one took to answer
}

// Slow reports whether a mount answered, and only after seconds.
func (m *Mount) Slow() bool { return !m.Hung && m.Waiting > 0 }

// A MountTable is the host's mounts, counted, and those that matter to the kubelet, probed.
type MountTable struct {
	Total   int
	ByType  map[string]int
	Kubelet int           // below the kubelet's folder
	Probed  []Mount       // below the kubelet's folder, and every one over the network; bounded, hung ones first
	Hidden  []HiddenMount // below the kubelet's folder
	Left    int           // that were not probed because there are too many, or the time was up
	// NoExec is the mount that holds the folders of pods, where it is mounted noexec. Each volume that is a folder there
	// is a bind mount in its container, and inherits that; the root of a container is an overlay, and does not.
	NoExec string `json:",omitempty"`
}

// A HiddenMount is one that another lies over, so that it cannot be unmounted.
type HiddenMount struct {
	Point, PodUID string
	Under         string // where the other one is mounted
}

// ProbeMounts counts the host's mounts, and probes those below the kubelet's folder and those over the network. A
// file system that is mounted several times is probed once. Those that have nothing behind them to wait for (tmpfs,
// proc, ...) are not probed, nor is autofs, which that would trigger.
//
// The fuse mounts of other users answer root with "permission denied" unless they were made with allow_other: that is
// an answer. With an error beside a table, no child could be started.
func ProbeMounts(
	ctx context.Context, root string, processes Population, kubeletDir string, child Child,
) (MountTable, error) {
	table, err := readMounts(root, "")
	if err != nil {
		return MountTable{}, err
	}
	if dir, ok := table.resolve(hostBase(root), kubeletDir); ok {
		kubeletDir = dir
	}
	result := MountTable{Total: table.total, ByType: table.byType, Hidden: table.hidden(kubeletDir)}
	for _, m := range table.lines {
		if below(m.point, kubeletDir) {
			result.Kubelet++
		}
	}
	if m, _ := table.under(hostBase(root), path.Join(kubeletDir, "pods")); m.noExec {
		result.NoExec = m.point
	}
	systems, left := table.probable(kubeletDir)
	inner, owners, errInner := processes.innerMounts(ctx, table)
	for _, m := range inner {
		systems = append(systems, []mountLine{m})
	}
	targets := make([]target, len(systems))
	for i, s := range systems {
		for _, m := range slices.Backward(s) { // the last lies on top
			targets[i] = append(targets[i], m.within())
		}
	}
	outcomes, err := child.ask(ctx, root, processes, verbMount, targets)
	err = errors.Join(err, errInner)
	result.Left = left
	for i, o := range outcomes {
		if !o.asked {
			result.Left += len(systems[i])
			continue
		}
		for _, line := range systems[i] {
			m := volumeOf(line.point, kubeletDir)
			if line.pid != 0 {
				m = Mount{PID: line.pid, Inside: *owners[line.pid], PodUID: owners[line.pid].PodUID}
			}
			m.Point, m.Type, m.Source, m.Network = line.point, line.kind, line.source, remote(line.kind)
			m.Asked, m.Hung, m.Waiting, m.Err = true, o.hung, o.waiting, o.reply.Err
			result.Probed = append(result.Probed, m)
		}
	}
	rank := func(m Mount) int {
		switch {
		case m.Hung:
			return 0
		case m.Err != "" || m.Slow():
			return 1
		}
		return 2
	}
	slices.SortStableFunc(result.Probed, func(a, b Mount) int { return rank(a) - rank(b) })
	if more := len(result.Probed) - maxProbed; more > 0 {
		result.Probed, result.Left = result.Probed[:maxProbed], result.Left+more
	}
	return result, err
}

// maxNamespaces bounds the mount namespaces that are looked into: those of all containers of a full node.
const maxNamespaces = 400

// innerMounts returns the mounts over the network that only a container, the runtime or the kubelet sees. Each
// container has a mount namespace, and so has a unit with private mounts.
func (p Population) innerMounts(ctx context.Context, hosts mountTable) ([]mountLine, map[int]*Owner, error) {
	known := map[string]bool{} // namespaces, and devices
	for _, m := range hosts.lines {
		known[m.device] = true
	}
	for _, dir := range []string{proc.Self, p.dir(1)} {
		known[proc.Namespace(dir, "mnt")] = true
	}
	owners, pids := map[int]*Owner{}, map[*Owner]int{}
	for _, st := range p.byWorth() { // daemons first
		ns := proc.Namespace(p.dir(st.pid), "mnt")
		if ns != "" && !known[ns] && len(owners) < maxNamespaces {
			known[ns], owners[st.pid] = true, &Owner{}
			pids[owners[st.pid]] = st.pid
		}
	}
	errOwners := p.setOwners(ctx, pids)
	tables, err := gather(ctx, "reading mount tables", slices.Sorted(maps.Keys(owners)),
		func(at *position, pid int) (mountTable, bool) {
			at.enter("the mounts of process %d (%s)", pid, p.all[pid].comm)
			text, _ := readLimited(filepath.Join(p.dir(pid), "mountinfo"), 1<<20)
			t, err := parseMounts(strings.NewReader(text), "")
			o := owners[pid]
			return t, err == nil && (o.Role != "" || o.ObjectID != "" || o.PodUID != "")
		})
	var all []mountLine
	for pid, t := range tables {
		for _, m := range t.lines {
			if m.pid = pid; remote(m.kind) && !known[m.device] && len(all) < maxProbed {
				all = append(all, m)
			}
		}
	}
	return all, owners, errors.Join(err, errOwners)
}

// probable returns the mounts to probe, by file system: those over the network first. Of those that there is no room
// for it returns the number of mounts.
func (t mountTable) probable(kubeletDir string) (systems [][]mountLine, left int) {
	index := map[string]int{}
	for _, network := range []bool{true, false} {
		for _, m := range t.lines {
			if remote(m.kind) != network || !network && !below(m.point, kubeletDir) || inMemory(m.kind) ||
				m.kind == "autofs" {
				continue
			}
			i, seen := index[m.device]
			switch {
			case seen:
				systems[i] = append(systems[i], m)
			case len(systems) == maxProbed:
				left++
			default:
				index[m.device] = len(systems)
				systems = append(systems, []mountLine{m})
			}
		}
	}
	return systems, left
}

// volumeOf reads from a mount point whose volume it is (pkg/kubelet/kubelet_getters.go,
// pkg/volume/csi/csi_attacher.go):
//
//	pods/UID/volumes/kubernetes.io~csi/NAME/mount
//	plugins/kubernetes.io/csi/DRIVER/HASH/globalmount
func volumeOf(point, kubeletDir string) Mount {
	inside, _ := strings.CutPrefix(point, kubeletDir+"/")
	p := append(strings.Split(inside, "/"), make([]string, 3)...)
	switch {
	case p[0] == "pods" && p[2] == "volumes":
		return Mount{PodUID: p[1], Driver: p[3]}
	case p[0] == "pods":
		return Mount{PodUID: p[1]}
	case p[0] == "plugins" && p[1] == "kubernetes.io" && p[2] == "csi":
		return Mount{Driver: p[3]}
	}
	return Mount{}
}

// A Space is the file system under one or more folders.
type Space struct {
	Folders    []Folder // that lie on it
	Mount      string   // its mount point
	Type       string   // ext4, xfs, overlay, tmpfs, ...
	Source     string   // device, export or name
	Size, Free uint64   // bytes; Free is for processes other than root's: statfs's f_bavail
	Inodes     uint64   // 0 where the file system has no fixed number (btrfs, some xfs)
	InodesFree uint64
	ReadOnly   bool          // by the host's mount table, which shows a remount after an error too
	Err        string        // why statfs returned nothing; empty when it did
	Hung       bool          // statfs did not answer
	Waiting    time.Duration // for how long a hung statfs has been waiting, earlier runs of kdiag included
}

// ReadSpaces returns the file systems that the folders lie on, in the order of the folders. Symbolic links are
// followed as the host would; a folder that does not exist is left out. With an error beside spaces, not all were
// asked, and those have an Err.
func ReadSpaces(
	ctx context.Context, root string, processes Population, folders []Folder, child Child,
) ([]Space, error) {
	table, err := readMounts(root, "")
	if err != nil {
		return nil, err
	}
	spaces, targets := table.group(hostBase(root), folders)
	outcomes, err := child.ask(ctx, root, processes, verbSpace, targets)
	for i, o := range outcomes {
		s, r := &spaces[i], o.reply
		s.Size, s.Free, s.Inodes, s.InodesFree, s.Err = r.Size, r.Free, r.Inodes, r.InodesFree, r.Err
		s.Hung, s.Waiting = o.hung, o.waiting
		if !o.asked {
			s.Err = "not asked in the time there was"
		}
	}
	return spaces, err
}

// group puts the folders together by the file system that they lie on, of which it returns the mount points too: one
// that is bound to several places is asked once.
func (t mountTable) group(base string, folders []Folder) (spaces []Space, targets []target) {
	var devices []string
	for _, f := range folders {
		m, ok := t.under(base, f.Path)
		if !ok {
			continue
		}
		i := slices.Index(devices, m.device)
		if i < 0 {
			i = len(spaces)
			devices = append(devices, m.device)
			spaces = append(spaces, Space{Mount: m.point, Type: m.kind, Source: m.source, ReadOnly: m.readOnly})
			points := target{m.point}
			for _, other := range t.lines {
				if other.device == m.device && other.point != m.point {
					points = append(points, other.point)
				}
			}
			targets = append(targets, points)
		}
		spaces[i].Folders = append(spaces[i].Folders, f)
	}
	return spaces, targets
}

// Writes are timed writes of 4 KiB with fsync into a new, unlinked file in a folder, one after the other.
type Writes struct {
	Folder  Folder
	Mount   string
	Times   []time.Duration // in the order in which they were made
	Err     string
	Hung    bool // one did not end in time
	Waiting time.Duration
}

// TimeWrites times some writes in a folder of the host's, each into its own file without a name, in a child. It stops
// at the first that fails: Err is the reason, such as a file system that is full or mounted read-only. One that has not
// ended when ctx nearly has hangs, and none is started where one of an earlier run still does.
func TimeWrites(ctx context.Context, root string, processes Population, folder Folder, child Child) (Writes, error) {
	w := Writes{Folder: folder}
	table, err := readMounts(root, "")
	if err != nil {
		return w, err
	}
	name, ok := table.resolve(hostBase(root), folder.Path)
	if !ok {
		w.Err = "there is no such folder"
		return w, nil
	}
	m, _ := table.of(name)
	outcomes, err := child.ask(ctx, root, processes, verbWrite, []target{{name}})
	o := outcomes[0]
	w.Mount, w.Times, w.Hung, w.Waiting, w.Err = m.point, o.reply.Times, o.hung, o.waiting, o.reply.Err
	if err == nil && !o.asked {
		err = errors.New("timing writes: none was made in the time there was")
	}
	return w, err
}
