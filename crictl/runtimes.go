package crictl

import (
	"slices"
	"strings"
)

// An Installation is a container runtime as its package, or a distribution of Kubernetes, sets it up on a node. It
// holds the names by which the rest of kdiag recognises it.
type Installation struct {
	Name      string   // for people: "CRI-O"
	Sockets   []string // paths of the CRI socket, the usual one first
	Units     []string // systemd units that run the runtime
	Processes []string // of the runtime, as in /proc/PID/comm
	Shims     []string // of its shims; a trailing * stands for any ending
	DataDir   string   // images and container layers, often on a separate disk
	StateDir  string   // sockets and state of running containers
	// RunsKubelet is set where one unit runs the runtime and the kubelet, so that restarting one restarts both.
	RunsKubelet bool
}

// The sockets of the distributions that run the kubelet inside another process.
const (
	k3sSocket      = "/run/k3s/containerd/containerd.sock"
	microk8sSocket = "/var/snap/microk8s/common/run/containerd.sock"
)

// Installations returns the known ones, in the order in which Discover looks for their sockets.
func Installations() []Installation {
	containerdShims := []string{"containerd-shim*"}
	return []Installation{
		{
			Name: "containerd", Sockets: []string{"/run/containerd/containerd.sock"},
			Units:     []string{"containerd.service"},
			Processes: []string{"containerd"}, Shims: containerdShims,
			DataDir: "/var/lib/containerd", StateDir: "/run/containerd",
		},
		{
			Name: "CRI-O", Sockets: []string{"/run/crio/crio.sock"}, Units: []string{"crio.service"},
			Processes: []string{"crio"}, Shims: []string{"conmon", "conmonrs"},
			DataDir: "/var/lib/containers/storage", StateDir: "/run/crio",
		},
		{
			Name: "cri-dockerd", Sockets: []string{"/run/cri-dockerd.sock", "/var/run/cri-dockerd.sock"},
			Units:     []string{"cri-docker.service", "docker.service"},
			Processes: []string{"cri-dockerd", "dockerd"}, Shims: containerdShims,
			DataDir: "/var/lib/docker", StateDir: "/run/docker",
		},
		{
			Name: "k3s and RKE2", Sockets: []string{k3sSocket},
			Units:     []string{"k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"},
			Processes: []string{"containerd"}, Shims: containerdShims,
			DataDir: "/var/lib/rancher", StateDir: "/run/k3s/containerd", RunsKubelet: true,
		},
		{
			Name: "k0s", Sockets: []string{"/run/k0s/containerd.sock"},
			Units:     []string{"k0scontroller.service", "k0sworker.service"},
			Processes: []string{"containerd"}, Shims: containerdShims,
			DataDir: "/var/lib/k0s", StateDir: "/run/k0s/containerd", RunsKubelet: true,
		},
		{
			Name: "MicroK8s", Sockets: []string{microk8sSocket},
			Units:     []string{"snap.microk8s.daemon-containerd.service"},
			Processes: []string{"containerd"}, Shims: containerdShims,
			DataDir: "/var/snap/microk8s/common", StateDir: "/var/snap/microk8s/common/run",
		},
	}
}

// IsWellKnown reports whether an endpoint is the usual socket of a known installation.
func IsWellKnown(endpoint string) bool {
	path := strings.TrimPrefix(endpoint, unixScheme)
	return slices.ContainsFunc(Installations(), func(in Installation) bool {
		return slices.Contains(in.Sockets, path) || slices.Contains(in.Sockets, strings.TrimPrefix(path, "/var"))
	})
}

// KubeletUnits returns the systemd units that run a kubelet, in the order in which to look for them. The snaps are
// of MicroK8s, EKS on Ubuntu and Charmed Kubernetes.
func KubeletUnits() []string {
	units := []string{"kubelet.service"}
	for _, in := range Installations() {
		if in.RunsKubelet {
			units = append(units, in.Units...)
		}
	}
	return append(units, "snap.microk8s.daemon-kubelite.service", "snap.kubelet-eks.daemon.service",
		"snap.kubelet.daemon.service")
}
