package host

import (
	"path"
	"strings"
)

// A cgroupName is what the name of a container's cgroup gives away.
type cgroupName struct {
	id     string // container or sandbox; empty when the cgroup is none of a container
	podUID string
}

// scopePrefixes are what runtimes put before the id in the name of a systemd scope.
var scopePrefixes = []string{"cri-containerd-", "crio-conmon-", "crio-", "docker-", "libpod-"}

// parseCgroup reads /proc/PID/cgroup and returns the innermost container that a line names:
//
//	0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1b2c_3d.slice/cri-containerd-<id>.scope
//	9:memory:/kubepods/burstable/pod1b2c-3d/<id>
func parseCgroup(b []byte) cgroupName {
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		if name := cgroupOf(parts[2]); name.id != "" {
			return name
		}
	}
	return cgroupName{}
}

func cgroupOf(p string) cgroupName {
	var name cgroupName
	for dir := path.Clean("/" + p); dir != "/"; dir = path.Dir(dir) {
		base := path.Base(dir)
		if name.id == "" {
			name.id = idOfCgroup(base)
			continue
		}
		if name.podUID = uidOfCgroup(base); name.podUID != "" {
			break
		}
	}
	return name
}

func idOfCgroup(base string) string {
	base = strings.TrimSuffix(base, ".scope")
	for _, prefix := range scopePrefixes {
		if rest, ok := strings.CutPrefix(base, prefix); ok {
			base = rest
			break
		}
	}
	if _, rest, ok := strings.Cut(base, ":cri-containerd:"); ok { // a systemd path given to the cgroupfs driver
		base = rest
	}
	if isID(base) {
		return base
	}
	return ""
}

// uidOfCgroup returns the pod's UID from kubepods-burstable-pod1b2c_3d.slice or pod1b2c-3d. The systemd driver writes _
// for each - of the UID.
func uidOfCgroup(base string) string {
	if slice, ok := strings.CutSuffix(base, ".slice"); ok {
		_, uid, found := strings.Cut(slice, "-pod")
		if !found || !strings.Contains(slice, "kubepods") { // kubelet-kubepods-... below --cgroup-root=/kubelet
			return ""
		}
		return strings.ReplaceAll(uid, "_", "-")
	}
	uid, ok := strings.CutPrefix(base, "pod")
	if !ok {
		return ""
	}
	return uid
}
