package host

import "github.com/kdiag/kdiag/crictl/proc"

// foreign reports whether a process is not this node's, whatever its name, which anybody may choose: it is another
// user's, has a pid namespace of its own, or is below a shim. Below a shim are also the OCI runtimes and plugins that
// it runs for its containers, in its own mounts, and the kubelet of a node whose parts are containers of Docker. What
// runc started may be in a container already.
func (p Population) foreign(st stat, role Role, roles map[int]Role) bool {
	if role == "" || role == RoleOCI && roles[st.ppid] == RoleOCI {
		return false
	}
	status, _ := readSmall(p.dir(st.pid), "status")
	if status != "" && (proc.OtherUser(status) != "" || proc.Nested(status)) { // else it has ended
		return true
	}
	above := st
	shim := proc.ShimAbove(st.pid, func(int) (_ int, _ string, ok bool) {
		above, ok = p.all[above.ppid]
		return above.pid, above.comm, ok
	})
	switch {
	case shim == 0:
		return false
	case role == RoleKubelet:
		return proc.RunsPods(p.root, shim)
	case role == RoleOCI || role == RoleCNI:
		return proc.Apart(p.dir(st.pid), p.dir(shim), "mnt")
	}
	return true
}
