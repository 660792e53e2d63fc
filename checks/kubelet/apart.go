package kubelet

import (
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/kdiag/kdiag/crictl/proc"
)

// apart returns which of the two daemons is in a network namespace of its own; empty for none.
func apart(root string, runtime, kubelet int) string {
	node, one, other := proc.Dir(root, 1), proc.Dir(root, runtime), proc.Dir(root, kubelet)
	switch {
	case runtime == 0 || kubelet == 0 || !proc.Apart(one, other, "net"):
		return ""
	case proc.Apart(one, node, "net") && !proc.Apart(other, node, "net"):
		return "runtime"
	case proc.Apart(other, node, "net") && !proc.Apart(one, node, "net"):
		return "kubelet"
	}
	return ""
}

// mountsStay reports whether what the kubelet mounts in its folder is known not to reach the runtime: it is in another
// mount namespace, and the mount of the folder passes nothing on to the runtime's (mount_namespaces(7)).
func mountsStay(root string, runtime int, s Settings) bool {
	if runtime == 0 || s.PID == 0 || !proc.Apart(proc.Dir(root, runtime), proc.Dir(root, s.PID), "mnt") {
		return false
	}
	from, known := mountOf(root, s.PID, s.RootDir)
	to, ok := mountOf(root, runtime, s.RootDir)
	group := from["shared"]
	return known && ok && (group == "" || group != to["shared"] && group != to["master"])
}

// mountOf returns the propagation of the mount in which a process has a folder: the numbers of the groups that it
// shares with others (shared), and receives from (master).
func mountOf(root string, pid int, folder string) (map[string]string, bool) {
	fs, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil, false
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return nil, false
	}
	all, err := p.MountInfo()
	var found *procfs.MountInfo
	for _, m := range all { // of two at one point the later one is above
		within := m.MountPoint == "/" || folder == m.MountPoint || strings.HasPrefix(folder, m.MountPoint+"/")
		if within && (found == nil || len(m.MountPoint) >= len(found.MountPoint)) {
			found = m
		}
	}
	if err != nil || found == nil {
		return nil, false
	}
	return found.OptionalFields, true
}
