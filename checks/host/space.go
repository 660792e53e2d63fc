package host

import (
	"context"
	"slices"
	"time"
)

// A Folder is a place that matters to the node, and why.
type Folder struct {
	Path string // as the host sees it, such as /var/lib/containerd
	Role string // runtime, kubelet, logs, root, temporary
	PID  int    // of the runtime's daemon that has its database open there; 0 when none was seen
}

// A Space is the file system under one or more folders.
type Space struct {
	Folders    []Folder // that lie on it
	Mount      string   // its mount point
	Type       string   // ext4, xfs, overlay, tmpfs, ...
	Source     string   // device, or what was mounted
	Size, Free uint64   // bytes; Free is what root may still use for others: statfs's f_bavail
	Inodes     uint64   // 0 where the file system has no fixed number (btrfs, some xfs)
	InodesFree uint64
	ReadOnly   bool          // by the host's mount table, which shows a remount after an error too
	Err        string        // why statfs brought nothing; empty when it did
	Hung       bool          // statfs did not answer
	Waiting    time.Duration // for how long a hung look has been waiting, earlier runs of kdiag included
}

// ReadSpaces returns the file systems that the folders lie on, in the order of the folders. Symbolic links are followed
// as the host would; a folder that does not exist is left out. An error beside spaces says that not each was asked: the
// Err of those says so too.
func ReadSpaces(ctx context.Context, root string, folders []Folder, child Child) ([]Space, error) {
	table, err := readMounts(root)
	if err != nil {
		return nil, err
	}
	spaces, devices := table.group(hostBase(root), folders)
	spots := make([]spot, len(spaces))
	for i, s := range spaces {
		spots[i] = spot{table.pointsOf(devices[i], s.Mount), numbered(devices[i], s.Type)}
	}
	q := &inquiry{child: child, root: root, verb: verbSpace, patience: patience}
	outcomes, err := q.ask(ctx, spots)
	for i, o := range outcomes {
		spaces[i].fill(o)
	}
	return spaces, err
}

// group puts the folders together by the file system that they lie on, of which it returns the device numbers too: what
// is bound to several places is asked once.
func (t mountTable) group(base string, folders []Folder) (spaces []Space, devices []string) {
	for _, f := range folders {
		name, ok := t.resolve(base, f.Path)
		if !ok {
			continue
		}
		m, ok := t.of(name)
		if !ok {
			continue
		}
		i := slices.Index(devices, m.device)
		if i < 0 {
			i = len(spaces)
			devices = append(devices, m.device)
			spaces = append(spaces, Space{Mount: m.point, Type: m.kind, Source: m.source, ReadOnly: m.readOnly})
		}
		spaces[i].Folders = append(spaces[i].Folders, f)
	}
	return spaces, devices
}

// pointsOf returns where else a file system is mounted; first comes first.
func (t mountTable) pointsOf(device, first string) []string {
	points := []string{first}
	for _, m := range t.lines {
		if m.device == device && m.point != first {
			points = append(points, m.point)
		}
	}
	return points
}

func (s *Space) fill(o outcome) {
	switch {
	case !o.asked:
		s.Err = "not asked in the time there was"
	case o.hung:
		s.Hung, s.Waiting = true, o.waiting
	default:
		r := o.reply
		s.Size, s.Free, s.Inodes, s.InodesFree, s.Err = r.Size, r.Free, r.Inodes, r.InodesFree, r.Err
	}
}
