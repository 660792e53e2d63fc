package host

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"time"
)

// A Mount is one line of the host's mount table, with what became of asking it for an answer.
type Mount struct {
	Point   string
	Type    string // nfs4, fuse.s3fs, ext4, tmpfs, ...
	Source  string // server:/export, device, or a name
	Network bool   // answers depend on another machine or on a process: nfs, cifs, ceph, fuse, 9p, ...
	PodUID  string // from /var/lib/kubelet/pods/UID/...
	Volume  string // the volume's name in the pod, or the driver's volume for a global mount
	Driver  string // the plugin: kubernetes.io~csi, kubernetes.io~nfs, ...

	Asked   bool
	Took    time.Duration // until it answered
	Err     string        // what it answered, when that was an error: stale file handle, transport endpoint is not connected
	Hung    bool          // no answer in time
	Waiting time.Duration // for how long a look has been waiting, earlier runs of kdiag included
	PID     int           // the process of kdiag's that waits in it, 0 for none
}

// A MountTable is the host's mounts, counted, and those that matter to the kubelet, probed.
type MountTable struct {
	Total   int
	ByType  map[string]int
	Kubelet int     // below the kubelet's folder
	Probed  []Mount // below the kubelet's folder, and every one over the network; bounded, hung ones first
	Left    int     // that were not probed because there are too many, or the time was up
}

// maxProbed bounds the file systems that are asked, and the mounts that are told of.
const maxProbed = 500

// ProbeMounts counts the host's mounts, and asks for an answer those below the kubelet's folder and those over the
// network. A file system that is mounted several times is asked once and the answer told of each. Those that have nothing
// behind them to wait for (tmpfs, proc, ...) are not asked, and autofs is not, which that would trigger.
//
// The fuse mounts of other users answer root with "permission denied" unless they were made with allow_other: that is
// an answer. An error beside a table says that no child could be started.
func ProbeMounts(ctx context.Context, root, kubeletDir string, child Child) (MountTable, error) {
	table, err := readMounts(root)
	if err != nil {
		return MountTable{}, err
	}
	if dir, ok := table.resolve(hostBase(root), kubeletDir); ok {
		kubeletDir = dir
	}
	result := MountTable{Total: table.total, ByType: table.byType}
	for _, m := range table.lines {
		if below(m.point, kubeletDir) {
			result.Kubelet++
		}
	}
	systems, left := table.probable(kubeletDir)
	spots := make([]spot, len(systems))
	for i, s := range systems {
		spots[i].device = numbered(s[0].device, s[0].kind)
		for _, m := range slices.Backward(s) { // the last lies on top
			spots[i].names = append(spots[i].names, m.point)
		}
	}
	q := &inquiry{child: child, root: root, verb: verbMount, patience: patience}
	outcomes, err := q.ask(ctx, spots)
	result.Left = left
	for i, o := range outcomes {
		for _, m := range systems[i] {
			if !o.asked || len(result.Probed) == maxProbed {
				result.Left++
				continue
			}
			result.Probed = append(result.Probed, mountOf(m, kubeletDir, o))
		}
	}
	slices.SortStableFunc(result.Probed, func(a, b Mount) int { return cmp.Compare(rank(a), rank(b)) })
	return result, err
}

// probable returns the mounts that are to be asked, by file system: those over the network first. Of those that there is
// no room for it returns the number of mounts.
func (t mountTable) probable(kubeletDir string) (systems [][]mountLine, left int) {
	index := map[string]int{}
	for _, network := range []bool{true, false} {
		for _, m := range t.lines {
			if remote(m.kind) != network || !network && !below(m.point, kubeletDir) || inMemory(m.kind) || m.kind == "autofs" {
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

// rank orders what hangs before what failed before the rest.
func rank(m Mount) int {
	switch {
	case m.Hung:
		return 0
	case m.Err != "":
		return 1
	}
	return 2
}

func mountOf(m mountLine, kubeletDir string, o outcome) Mount {
	v := volumeOf(m.point, kubeletDir)
	v.Point, v.Type, v.Source, v.Network = m.point, m.kind, m.source, remote(m.kind)
	v.Asked, v.Hung, v.Waiting, v.PID = o.reply.Err != unseen, o.hung, o.waiting, o.pid
	v.Took, v.Err = o.reply.Took, o.reply.Err
	return v
}

// volumeOf reads from a mount point whose volume it is (pkg/kubelet/kubelet_getters.go, pkg/volume/csi/csi_attacher.go):
//
//	pods/UID/volumes/kubernetes.io~csi/NAME/mount
//	pods/UID/volume-subpaths/NAME/CONTAINER/0
//	plugins/kubernetes.io/csi/DRIVER/HASH/globalmount    pv/NAME/globalmount before Kubernetes 1.24
//	plugins/kubernetes.io/rbd/mounts/NAME
func volumeOf(point, kubeletDir string) Mount {
	if !below(point, kubeletDir) {
		return Mount{}
	}
	p := strings.Split(strings.Trim(strings.TrimPrefix(point, kubeletDir), "/"), "/")
	at := func(i int) string {
		if i < len(p) {
			return p[i]
		}
		return ""
	}
	switch {
	case at(0) == "pods" && at(2) == "volumes":
		return Mount{PodUID: at(1), Driver: at(3), Volume: at(4)}
	case at(0) == "pods" && at(2) == "volume-subpaths":
		return Mount{PodUID: at(1), Volume: at(3)}
	case at(0) == "pods":
		return Mount{PodUID: at(1)}
	case at(0) != "plugins" || at(1) != "kubernetes.io":
		return Mount{}
	case at(2) == "csi" && at(3) == "pv":
		return Mount{Driver: "kubernetes.io~csi", Volume: at(4)}
	case at(2) == "csi":
		return Mount{Driver: at(3), Volume: at(4)}
	case at(3) == "mounts":
		return Mount{Driver: "kubernetes.io~" + at(2), Volume: path.Join(p[4:]...)}
	}
	return Mount{}
}
