package journal

import "testing"

func TestUnitRole(t *testing.T) {
	for name, want := range map[string]Role{
		"kubelet.service": RoleKubelet, "kubelet": RoleKubelet, "Kubelet": RoleKubelet,
		"Kubernetes Kubelet":                 RoleKubelet,
		"kubelet: The Kubernetes Node Agent": RoleKubelet, "snap.microk8s.daemon-kubelite.service": RoleKubelet,
		"k3s-agent.service": RoleKubelet, "k3s-lab.service": RoleKubelet, "rke2-server": RoleKubelet,
		"k0sworker.service":             RoleKubelet,
		"atomic-openshift-node.service": RoleKubelet, "snap.kubelet-eks.daemon.service": RoleKubelet,
		"snap.kubelet.daemon.service":                     RoleKubelet,
		"Service for snap application kubelet-eks.daemon": RoleKubelet, "Lightweight Kubernetes": RoleKubelet,
		"containerd.service": RoleRuntime, "containerd container runtime": RoleRuntime, "docker": RoleRuntime,
		"crio":               RoleRuntime,
		"cri-docker.service": RoleRuntime, "snap.microk8s.daemon-containerd.service": RoleRuntime,
		"cri-containerd-12.scope": RoleOther, "k3s-lab.socket": RoleOther, "kubepods.slice": RoleOther,
		"docker.socket": RoleOther, "sshd.service": RoleOther,
		"containerd-nydus-grpc.service": RoleOther, "kubelet-csr-approver.service": RoleOther, "systemd": RoleOther,
		"conmon": RoleOther, "": RoleOther,
	} {
		if got := UnitRole(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}
