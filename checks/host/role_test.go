package host

import (
	"strings"
	"testing"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestIdentify(t *testing.T) {
	tests := []struct {
		name   string
		comm   string
		args   string
		parent Role
		role   Role
		id     string
	}{
		{"containerd", "containerd", "/usr/bin/containerd", "", RoleRuntime, ""},
		{"k3s containerd", "containerd", "containerd -c /var/lib/rancher/k3s/agent/etc/containerd/config.toml", RoleKubelet, RoleRuntime, ""},
		{"containerd publish", "containerd", "/usr/bin/containerd --address /run/c.sock publish --topic /tasks/exit --namespace k8s.io", RoleShim, "", ""},
		{"crio", "crio", "/usr/bin/crio", "", RoleRuntime, ""},
		{"dockerd", "dockerd", "/usr/bin/dockerd -H fd://", "", RoleRuntime, ""},
		{"cri-dockerd", "cri-dockerd", "/usr/bin/cri-dockerd", "", RoleRuntime, ""},
		{"containerd-stress", "containerd-stre", "containerd-stress -a x", "", "", ""},

		{"shim v2", "containerd-shim", "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id " + idA + " -address /run/c.sock", "", RoleShim, idA},
		{"shim of gVisor", "containerd-shim", "/usr/bin/containerd-shim-runsc-v1 -id " + idA, "", RoleShim, idA},
		{"shim with another id", "containerd-shim", "containerd-shim-runc-v2 -id my-task.1", "", RoleShim, "my-task.1"},
		{"shim with an id for the terminal", "containerd-shim", "containerd-shim-runc-v2 -id \x1b[31m", "", RoleShim, ""},
		{"zombie shim", "containerd-shim", "", "", RoleShim, ""},
		{"conmon short", "conmon", "/usr/libexec/crio/conmon -b /run/x -c " + idA + " --exit-dir /var/run/crio/exits -n k8s_a_b_c_d_0 -u " + idB, "", RoleShim, idA},
		{"conmon long", "conmon", "conmon --cid=" + idA + " --cuuid " + idB, "", RoleShim, idA},

		{"runc create", "runc", "runc --root /run/containerd/runc/k8s.io --log /x/" + idB + "/log.json create --bundle /x/" + idA + " --pid-file p " + idA, RoleShim, RoleOCI, idA},
		{"runc kill", "runc", "runc kill " + idA + " 9", RoleShim, RoleOCI, idA},
		{"runc with other ids", "runc", "runc kill web 9", "", RoleOCI, ""},
		{"runc init of a created container", "runc:[2:INIT]", "runc init", RoleShim, "", ""},
		{"runc init at work", "runc:[2:INIT]", "runc init", RoleOCI, RoleOCI, ""},
		{"runc exec", "runc", "runc --root /run/runc --log /x --log-format json exec --process /p " + idA, RoleShim, "", ""},
		{"runc exec of a command with -d", "runc", "runc exec " + idA + " tar -d", RoleShim, "", ""},
		{"runc exec detached", "runc", "runc --root /run/runc exec --process /p --detach --pid-file f " + idA, RoleShim, RoleOCI, idA},
		{"runc run", "runc", "runc --debug --rootless true run " + idA, "", "", ""},
		{"runc run detached", "runc", "runc --criu x run -d " + idA, "", RoleOCI, idA},
		{"runc events", "runc", "runc events " + idA, "", "", ""},
		{"crun exec", "crun", "/usr/bin/crun --root=/run/crun --systemd-cgroup exec --process /tmp/p " + idA, RoleRuntime, "", ""},
		{"gVisor waits", "runsc", "runsc --root /run/wait --log /x/log.json --log-format json wait " + idA, RoleShim, "", ""},
		{"runc alone", "runc", "runc", "", RoleOCI, ""},
		{"crun from a memory file", "3", "/usr/bin/crun --root /run/crun start " + idA, RoleShim, RoleOCI, idA},
		{"a number elsewhere", "3", "/usr/bin/crun start " + idA, "", "", ""},
		{"youki", "youki", "youki create --id=" + idA, RoleShim, RoleOCI, idA},
		{"runsc", "runsc", "runsc --root=/run/runsc state " + idA, RoleShim, RoleOCI, idA},
		{"runsc sandbox", "runsc", "runsc-sandbox --root=/run/runsc boot --bundle=/x " + idA, RoleShim, "", ""},
		{"nvidia hook", "nvidia-containe", "nvidia-container-runtime-hook prestart", RoleOCI, RoleOCI, ""},
		{"nvidia monitor", "nvidia-containe", "nvidia-container-toolkit-daemon", "", "", ""},

		{"plugin by directory", "bridge", "/opt/cni/bin/bridge", RoleRuntime, RoleCNI, ""},
		{"unknown plugin by directory", "mine", "/usr/lib/cni/mine", "", RoleCNI, ""},
		{"plugin by name below the runtime", "cilium-cni", "cilium-cni", RoleRuntime, RoleCNI, ""},
		{"plugin of a plugin", "host-local", "host-local", RoleCNI, RoleCNI, ""},
		{"plugin that is a script", "mine", "/bin/busybox sh /opt/cni/bin/mine", RoleRuntime, RoleCNI, ""},
		{"a script that looks at a plugin", "sh", "/bin/sh /opt/cni/bin/mine", "", "", ""},
		{"a bridge elsewhere", "bridge", "/usr/bin/bridge monitor", "", "", ""},
		{"cut plugin name", "ovn-k8s-cni-ove", "ovn-k8s-cni-overlay", RoleRuntime, RoleCNI, ""},
		{"other child of the runtime", "unpigz", "unpigz -d -c", RoleRuntime, "", ""},

		{"kubelet", "kubelet", "/usr/bin/kubelet --config x", "", RoleKubelet, ""},
		{"k3s", "k3s-server", "/usr/local/bin/k3s server", "", RoleKubelet, ""},
		{"microk8s", "kubelite", "/snap/microk8s/1/kubelite", "", RoleKubelet, ""},
		{"a lookalike", "kubelet-helper", "kubelet-helper", "", "", ""},
		{"nothing", "", "", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var argv []string
			if tt.args != "" {
				argv = strings.Split(tt.args, " ")
			}
			role, id := testNames.identify(tt.comm, argv, tt.parent)
			if role != tt.role || id != tt.id {
				t.Errorf("identify(%q, %q, %q) = %q, %q, want %q, %q", tt.comm, argv, tt.parent, role, id, tt.role, tt.id)
			}
			if role != "" && role != RoleCNI && tt.parent == "" && testNames.role(tt.comm) == "" {
				t.Errorf("roleOfName(%q) is empty, so a %s would never be looked at", tt.comm, role)
			}
		})
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add("containerd-shim", "containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00"+idA+"\x00", "")
	f.Add("runc", "runc\x00kill\x00"+idA+"\x009\x00", "shim")
	f.Add("conmon", "conmon\x00-c", "runtime")
	f.Add("3", "\x00\x00", "oci")
	f.Add("bridge", "/opt/cni/bin/bridge", "runtime")
	f.Fuzz(func(t *testing.T, comm, cmdline, parent string) {
		role, id := testNames.identify(comm, strings.Split(strings.TrimRight(cmdline, "\x00"), "\x00"), Role(parent))
		if id != "" && !plausibleID(id) {
			t.Errorf("identify(%q, %q) gives the id %q, which is none", comm, cmdline, id)
		}
		if id != "" && !strings.Contains(cmdline, id) {
			t.Errorf("identify(%q, %q) gives the id %q, which is not in the arguments", comm, cmdline, id)
		}
		if id != "" && role != RoleShim && role != RoleOCI {
			t.Errorf("identify(%q, %q) = %q with an id", comm, cmdline, role)
		}
	})
}
