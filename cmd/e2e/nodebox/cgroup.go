//go:build e2e

package nodebox

import (
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

// makeCgroups makes a cgroup for the box in every hierarchy and returns their roots, so that its systemd cannot touch
// the machine's. Where systemd runs the machine there is nothing to do: it delegates a part of its tree to
// systemd-nspawn.
func (b *Box) makeCgroups() ([]string, error) {
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
	for _, root := range roots {
		dir := filepath.Join(root, filepath.Base(b.dir))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		// A new cpuset of version 1 has neither processors nor memory and takes no process.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(root, name)); err == nil {
				if err := os.WriteFile(filepath.Join(dir, name), value, 0o644); err != nil {
					return nil, err
				}
			}
		}
	}
	return roots, nil
}
