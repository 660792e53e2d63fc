package nodebox

import (
	"fmt"
	"os"
	"path/filepath"
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
	roots, err := mountsBelow("/sys/fs/cgroup")
	if err != nil {
		return nil, err
	}
	if len(roots) > 1 { // version 1: the first is the folder of the hierarchies
		roots = roots[1:]
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
