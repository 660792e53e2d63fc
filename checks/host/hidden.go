package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/kdiag/kdiag/crictl/proc"
)

// initialPIDs is the target of /proc/1/ns/pid on a host (PROC_PID_INIT_INO in include/linux/proc_ns.h).
const initialPIDs = "pid:[4026531836]"

// hidden returns an error when this process does not see the host's processes: /proc is empty, it belongs to a PID
// namespace without an init and without anything of a runtime or a kubelet, such as that of a pod without hostPID, or
// it is mounted with hidepid (Documentation/filesystems/proc.rst, 4.1). Then it shows a process only to users who may
// trace it, and process 1 is root's.
func (p Population) hidden() error {
	dir := filepath.Join(p.root, "proc")
	_, first := p.all[1]
	_, errSelf := os.Stat(filepath.Join(dir, "self"))
	pids := proc.Namespace(p.dir(1), "pid")
	switch {
	case len(p.all) == 0 && p.boot.IsZero():
		return fmt.Errorf("listing processes: %s is empty", dir)
	case !first && errSelf == nil:
		return fmt.Errorf("listing processes: /proc is mounted with hidepid, and user %d sees only its own", os.Geteuid())
	case pids != "" && pids != initialPIDs && !slices.Contains([]string{"systemd", "init"}, p.all[1].comm) &&
		len(p.of(RoleRuntime, RoleKubelet, RoleShim)) == 0:
		return fmt.Errorf("listing processes: %s shows another PID namespace, of %s", dir, p.all[1].comm)
	}
	return nil
}
