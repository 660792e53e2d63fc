package host

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// thawWait is the kernel function in which a write waits for the end of fsfreeze (sb_start_write in
// include/linux/fs.h).
const thawWait = "percpu_rwsem_wait"

// A TaskDisk is a file system on a disk that a task sees, other than that of the host's root.
type TaskDisk struct {
	Mount     string // where the host has it; empty where it has not
	Source    string // /dev/mapper/data
	Suspended bool   // device mapper keeps all requests (dmsetup suspend), as for a snapshot
}

// explainFrozen adds the file systems of the tasks that wait for the end of a freeze. What cannot be read is left out:
// they wait all the same.
func (p Population) explainFrozen(ctx context.Context, blocked []BlockedTask) {
	var pids []int
	for _, t := range blocked {
		if t.Wchan == thawWait {
			pids = append(pids, t.PID)
		}
	}
	if len(pids) == 0 {
		return
	}
	table, err := readMounts(p.root, "")
	if err != nil {
		return
	}
	disks, _ := gather(ctx, "reading mounts of tasks", pids, func(at *position, pid int) ([]TaskDisk, bool) {
		return p.disksOf(at, pid, table), true
	})
	for i, t := range blocked {
		if t.Wchan == thawWait {
			blocked[i].Disks = disks[t.PID]
		}
	}
}

// disksOf returns the file systems that a process may wait for when a write of it waits for the end of a freeze. The
// files that runtime and kubelet put into each container do not count.
func (p Population) disksOf(at *position, pid int, host mountTable) (disks []TaskDisk) {
	at.enter("mountinfo of process %d", pid)
	f, err := os.Open(filepath.Join(p.dir(pid), "mountinfo"))
	if err != nil {
		return nil
	}
	defer f.Close()
	table, _ := parseMounts(f, "") // as far as it is understood
	root, _ := host.of("/")
	seen := map[string]bool{root.device: true}
	ofContainer := []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log"}
	for _, m := range table.lines {
		if seen[m.device] || !strings.HasPrefix(m.source, "/dev/") || m.readOnly || slices.Contains(ofContainer, m.point) {
			continue
		}
		seen[m.device] = true
		d := TaskDisk{Source: m.source}
		if i := slices.IndexFunc(host.lines, func(h mountLine) bool { return h.device == m.device }); i >= 0 {
			d.Mount = host.lines[i].point
		}
		suspended, _ := readUint(deviceDir(p.root, m.device), "dm/suspended")
		d.Suspended = suspended == 1
		disks = append(disks, d)
	}
	return disks
}
