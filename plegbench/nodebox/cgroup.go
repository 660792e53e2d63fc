package nodebox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// enterCgroups moves a shell into each cgroup named like the box, and then runs systemd-nspawn in its place.
// systemd-nspawn makes a cgroup namespace of where it starts.
const enterCgroups = `for a; do
	case "$a" in
	--bind=*:/sys/fs/cgroup*) a=${a#--bind=}; echo $$ > "${a%%:*}/cgroup.procs" || exit ;;
	esac
done
exec systemd-nspawn "$@"`

// A cgroupMount is a box's own cgroup in one hierarchy, and the place of that hierarchy's root.
type cgroupMount struct{ dir, mount string }

// makeCgroups makes a cgroup for the box in every hierarchy, so that its systemd cannot touch the machine's. Where
// systemd runs the machine there is nothing to do: it delegates a part of its tree to systemd-nspawn.
func (b *Box) makeCgroups() ([]cgroupMount, error) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		return nil, nil
	}
	roots, err := cgroupRoots()
	if err != nil {
		return nil, err
	}
	var made []cgroupMount
	for _, root := range roots {
		m := cgroupMount{dir: filepath.Join(root, filepath.Base(b.dir)), mount: root}
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return nil, fmt.Errorf("making the box's cgroup: %w", err)
		}
		// A new cpuset of version 1 has neither processors nor memory and takes no process.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(root, name)); err == nil {
				if err := os.WriteFile(filepath.Join(m.dir, name), value, 0o644); err != nil {
					return nil, fmt.Errorf("making the box's cgroup: %w", err)
				}
			}
		}
		made = append(made, m)
	}
	return made, nil
}

// cgroupRoots returns where the cgroup hierarchies are mounted, from /proc/self/mountinfo. The type of the file system
// follows the lone dash:
//
//	29 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
func cgroupRoots() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var roots []string
	for line := range strings.Lines(string(b)) {
		mount, fs, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 || !strings.HasPrefix(fs, "cgroup") || !strings.HasPrefix(fields[4], "/sys/fs/cgroup") {
			continue
		}
		roots = append(roots, fields[4])
	}
	return roots, nil
}
