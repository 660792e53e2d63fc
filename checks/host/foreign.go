package host

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// foreign reports whether a process is not this node's, whatever its name, which anybody may choose. It is neither
// root's nor this user's (a program may become root under another name, so the real user counts too), has a pid
// namespace of its own, or is below a shim. Below a shim are also what it runs for its containers, in its own mounts,
// and the kubelet of a node whose parts are containers of Docker. What runc started may be in a container already.
func (p Population) foreign(st stat, role Role, roles map[int]Role) bool {
	if role == "" || role == RoleOCI && roles[st.ppid] == RoleOCI {
		return false
	}
	own := []string{"0", strconv.Itoa(os.Geteuid())}
	uids := status(p.dir(st.pid), "Uid")
	if len(status(p.dir(st.pid), "NSpid")) > 1 ||
		slices.ContainsFunc(uids[:min(len(uids), 2)], func(uid string) bool { return !slices.Contains(own, uid) }) {
		return true
	}
	ancestors := p.ancestors(st)
	i := slices.IndexFunc(ancestors, func(a stat) bool { return roles[a.pid] == RoleShim })
	switch {
	case i < 0:
		return false
	case role == RoleKubelet:
		cwd, err := os.Readlink(filepath.Join(p.dir(ancestors[i].pid), "cwd"))
		return err == nil && !strings.Contains(cwd, "/"+taskDir+"/moby/")
	case role == RoleOCI || role == RoleCNI:
		return !p.sameMounts(st.pid, ancestors[i].pid)
	}
	return true
}

// sameMounts reports whether two processes have one mount namespace, as far as that can be seen.
func (p Population) sameMounts(a, b int) bool {
	first, err := os.Readlink(filepath.Join(p.dir(a), "ns/mnt"))
	second, err2 := os.Readlink(filepath.Join(p.dir(b), "ns/mnt"))
	return err != nil || err2 != nil || first == second
}
