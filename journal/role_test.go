package journal

import (
	"strings"
	"testing"

	"github.com/kdiag/kdiag/internal/testkit"
)

func TestUnitRole(t *testing.T) {
	for role, names := range map[Role]string{
		RoleKubelet: `kubelet.service|kubelet|Kubelet|Kubernetes Kubelet|kubelet: The Kubernetes Node Agent|` +
			`rke2-server|snap.microk8s.daemon-kubelite.service|k3s-agent.service|k3s-lab.service|k0sworker.service|` +
			`atomic-openshift-node.service|snap.kubelet-eks.daemon.service|snap.kubelet.daemon.service|` +
			`Service for snap application kubelet-eks.daemon|Lightweight Kubernetes`,
		RoleRuntime: `containerd.service|containerd container runtime|docker|crio|cri-docker.service|` +
			`snap.microk8s.daemon-containerd.service`,
		RoleOther: `cri-containerd-12.scope|k3s-lab.socket|kubepods.slice|docker.socket|sshd.service|systemd|conmon||` +
			`containerd-nydus-grpc.service|kubelet-csr-approver.service`,
	} {
		for name := range strings.SplitSeq(names, "|") {
			testkit.Equal(t, name, role, UnitRole(name))
		}
	}
}
