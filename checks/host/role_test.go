package host

import (
	"strings"
	"testing"
)

func TestIdentify(t *testing.T) {
	for _, tt := range []struct {
		comm, args string
		parent     Role
		role       Role
		id         string
	}{
		{"containerd", "/usr/bin/containerd", "", RoleRuntime, ""},
		{"containerd", "/usr/bin/containerd --address /run/c.sock publish --topic /tasks/exit", RoleShim, "", ""},

		{"containerd-shim", "containerd-shim-runc-v2 -namespace k8s.io -id " + idA + " -debug", "", RoleShim, idA},
		{"containerd-shim", "containerd-shim-runc-v2 -id \x1b[31m", "", RoleShim, ""},
		{"containerd-shim", "", "", RoleShim, ""}, // a zombie
		{"conmon", "conmon -b /run/x -c " + idA + " --exit-dir /exits -n k8s_a_b_c_d_0 -u " + idB, "", RoleShim, idA},

		{
			"runc", "runc --root /r --log /x/" + idB + "/log.json create --bundle /x/" + idA + " --pid-file p " + idA,
			RoleShim, RoleOCI, idA,
		},
		{"runc", "runc kill " + idA + " 9", RoleShim, RoleOCI, idA},
		{"runc:[2:INIT]", "runc init", RoleShim, "", ""}, // of a container that was created
		{"runc:[2:INIT]", "runc init", RoleOCI, RoleOCI, ""},
		{"runc", "runc --root /run/runc --log /x --log-format json exec --process /p " + idA, RoleShim, "", ""},
		{"runc", "runc exec " + idA + " tar -d", RoleShim, "", ""}, // -d of the command
		{"runc", "runc --root /run/runc exec --process /p --detach --pid-file f " + idA, RoleShim, RoleOCI, idA},
		{"crun", "/usr/bin/crun --root=/run/crun --systemd-cgroup exec --process /tmp/p " + idA, RoleRuntime, "", ""},
		{"runsc", "runsc --root /run/wait --log /x/log.json wait " + idA, RoleShim, "", ""},
		{"3", "/usr/bin/crun --root /run/crun start " + idA, RoleShim, RoleOCI, idA}, // from a memory file
		{"youki", "youki create --id=" + idA, RoleShim, RoleOCI, idA},
		{"runsc", "runsc-sandbox --root=/run/runsc boot --bundle=/x " + idA, RoleShim, "", ""},
		{"nvidia-containe", "nvidia-container-runtime-hook prestart", RoleOCI, RoleOCI, ""},

		{"bridge", "/opt/cni/bin/bridge", RoleRuntime, RoleCNI, ""},
		{"mine", "/usr/lib/cni/mine", "", RoleCNI, ""},
		{"cilium-cni", "cilium-cni", RoleRuntime, RoleCNI, ""},
		{"mine", "/bin/busybox sh /opt/cni/bin/mine", RoleRuntime, RoleCNI, ""},
		{"sh", "/bin/sh /opt/cni/bin/mine", "", "", ""},
		{"bridge", "/usr/bin/bridge monitor", "", "", ""},

		{"kubelet", "/usr/bin/kubelet --config x", "", RoleKubelet, ""},
		{"kubelet-helper", "kubelet-helper", "", "", ""},
	} {
		role, id := testNames.identify(tt.comm, strings.Fields(tt.args), tt.parent)
		if role != tt.role || id != tt.id {
			t.Errorf("%s %q below %q is %q %q, want %q %q", tt.comm, tt.args, tt.parent, role, id, tt.role, tt.id)
		}
		if role != "" && role != RoleCNI && tt.parent == "" && testNames.role(tt.comm) == "" {
			t.Errorf("the name %q has no role, so the arguments of a %s would never be read", tt.comm, role)
		}
	}
}

// TestRenamed has the sockets of a cri-dockerd as the kernel shows them.
func TestRenamed(t *testing.T) {
	for _, endpoint := range []string{"unix:///var/run/cri-dockerd.sock", "/var/run/cri-dockerd.sock"} {
		sockets := []string{"/var/run/181548491", "/var/run/docker.sock", "/tmp/42"}
		renamed(sockets, endpoint)
		equal(t, endpoint, []string{"/var/run/cri-dockerd.sock", "/var/run/docker.sock", "/tmp/42"}, sockets)
	}
}
