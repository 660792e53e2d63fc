package journal

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/journal/signature"
)

// A role is what a process, or a unit, is to the node.
type role uint8

const (
	roleOther   role = iota
	roleRuntime      // the daemon behind the CRI socket
	roleShim         // a shim or conmon: one pod or container
	roleOCI          // an OCI runtime at work on one container; it may have become the container's own process already
	roleKubelet
	roleInit // systemd, which runc asks for cgroups
)

// taskRole tells processes apart that the node cannot do without, by the 15 bytes that the kernel keeps of a name.
// Names that only begin alike, such as docker-entrypoint.sh, are a container's own.
func taskRole(name string) role {
	has := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	switch {
	case has("containerd-shim", "docker-containe", "conmon"), name == "shim":
		return roleShim
	case has("runc", "crun"):
		return roleOCI
	case slices.Contains([]string{"containerd", "dockerd", "docker", "crio", "cri-dockerd"}, name):
		return roleRuntime
	case slices.Contains([]string{"kubelet", "kubelite", "hyperkube", "edgecore", "k3s", "rke2", "k0s"}, name), has("k3s-", "rke2-"):
		return roleKubelet
	case name == "systemd":
		return roleInit
	}
	return roleOther
}

// unitRole is the role of a systemd unit, as package signature has it.
func unitRole(lane signature.Lane) role {
	switch lane {
	case signature.Kubelet:
		return roleKubelet
	case signature.Runtime:
		return roleRuntime
	}
	return roleOther
}

// senderRole tells who wrote a record, by its unit or identifier. A record that names no sender but bears a stamp of the
// program's own is of a log that one program writes, and such a log is mostly the kubelet's.
func senderRole(r *record) role {
	named := false
	for _, s := range r.senders {
		if s == "" {
			continue
		}
		named = true
		program := s[strings.LastIndexByte(s, '/')+1:] // some give their whole path
		if who := taskRole(strings.TrimSuffix(program, ".service")); who != roleOther {
			return who
		}
	}
	if !named && r.inner.Known {
		return roleKubelet
	}
	return roleOther
}

// anyonesWords reports whether records of a signature are in words that any program uses, so that it matters whose they are.
func anyonesWords(code string) bool {
	switch code {
	case signature.DiskFull, signature.FilesExhausted:
		return true
	}
	return false
}

// vital reports whether a role is one that all containers of a node, or one of them, cannot do without.
func vital(r role) bool { return r == roleRuntime || r == roleShim || r == roleKubelet }

// ofPods reports whether a cgroup belongs to pods.
func ofPods(cgroup string) bool { return strings.Contains(cgroup, "kubepods") }
