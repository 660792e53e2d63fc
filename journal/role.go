package journal

import (
	"path"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/journal/textlog"
)

// A Role is the part that a process or a unit plays on the node.
type Role uint8

// The roles.
const (
	RoleOther   Role = iota
	RoleRuntime      // the daemon behind the CRI socket
	RoleShim         // a shim or conmon: one pod or container
	RoleOCI          // an OCI runtime at work on one container; it may have become the container's own process already
	RoleKubelet      // or what holds one: k3s, RKE2 and MicroK8s run the kubelet inside a process of their own name
	RoleInit         // systemd, which runc asks for cgroups
)

// TaskRole recognises processes that the node cannot do without, by the 15 bytes that the kernel keeps of a name.
// Names that only begin alike, such as docker-entrypoint.sh or kubelet-csr-approver, are a container's own.
func TaskRole(name string) Role {
	has := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	switch {
	case has("containerd-shim", "docker-containe", "conmon"), name == "shim":
		return RoleShim
	case has("runc", "crun"):
		return RoleOCI
	case slices.Contains([]string{
		"containerd", "dockerd", "dockerd-current", "dockerd-ce", "docker", "crio", "cri-dockerd",
	}, name):
		return RoleRuntime
	case slices.Contains([]string{"kubelet", "kubelite", "hyperkube", "edgecore", "k3s", "rke2", "k0s"}, name),
		has("k3s-", "rke2-"):
		return RoleKubelet
	case name == "systemd":
		return RoleInit
	}
	return RoleOther
}

// UnitRole returns the role of a systemd unit: RoleRuntime, RoleKubelet or RoleOther. It goes by the unit's
// name or, where systemd logs only that, by its description. Most units bear the name of their program, k3s with a
// suffix that its installer was given.
func UnitRole(name string) Role {
	if r := laneRole(signature.UnitLane(name)); r != RoleOther {
		return r
	}
	program := strings.TrimPrefix(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), ".service"),
		"snap.microk8s.daemon-")
	if r := TaskRole(program); (r == RoleRuntime || r == RoleKubelet) && !strings.Contains(program, ".") {
		return r
	}
	return RoleOther
}

// laneRole is the role of a unit as package signature has it.
func laneRole(lane signature.Lane) Role {
	return map[signature.Lane]Role{signature.Kubelet: RoleKubelet, signature.Runtime: RoleRuntime}[lane]
}

// senderRole returns who wrote a record, by its units and its identifier, and which of these tells. A record that names
// no sender is of a log that one program writes: logrus is a runtime's, and other stamps of a program are mostly the
// kubelet's.
func senderRole(r *textlog.Record) (role Role, name string) {
	by := senders(r)
	for _, name := range by {
		name = strings.TrimSuffix(path.Base(name), ".service") // some give their whole path
		if role = TaskRole(name); role != RoleOther {
			return role, name
		}
	}
	switch {
	case len(by) > 0:
	case strings.HasSuffix(r.Format, "logrus"):
		role = RoleRuntime
	case r.Inner.Known:
		role = RoleKubelet
	}
	return role, ""
}
