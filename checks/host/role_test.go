package host

import (
	"fmt"
	"os"
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
		{"containerd", "/usr/bin/containerd --address /run/c.sock publish --topic /tasks/exit", RoleShim, "", ""},

		{"containerd-shim", "containerd-shim-runc-v2 -namespace k8s.io -id " + idA + " -debug", "", RoleShim, idA},
		{"containerd-shim", "containerd-shim-runc-v2 -id \x1b[31m", "", RoleShim, ""},
		{"conmon", "conmon -b /run/x -c " + idA + " --exit-dir /exits -n k8s_a_b_c_d_0 -u " + idB, "", RoleShim, idA},

		{
			"runc", "runc --root /r --log /x/" + idB + "/log.json create --bundle /x/" + idA + " --pid-file p " + idA,
			RoleShim, RoleOCI, idA,
		},
		{"runc", "runc kill " + idA + " 9", RoleShim, RoleOCI, idA},
		{"runc:[2:INIT]", "runc init", RoleShim, "", ""}, // of a container that was created
		{"runc", "runc --root /run/runc --log /x --log-format json exec --process /p " + idA, RoleShim, "", ""},
		{"runc", "runc --root /run/runc exec --process /p --detach --pid-file f " + idA, RoleShim, RoleOCI, idA},
		{"3", "/usr/bin/crun --root /run/crun start " + idA, RoleShim, RoleOCI, idA}, // from a memory file
		{"runsc", "runsc-sandbox --root=/run/runsc boot --bundle=/x " + idA, RoleShim, "", ""},
		{"nvidia-containe", "nvidia-container-runtime-hook prestart", RoleOCI, RoleOCI, ""},

		{"mine", "/usr/lib/cni/mine", "", RoleCNI, ""},
		{"mine", "/bin/busybox sh /opt/cni/bin/mine", RoleRuntime, RoleCNI, ""},
		{"bridge", "/usr/bin/bridge monitor", "", "", ""},
	} {
		role, id := testNames.identify(tt.comm, strings.Fields(tt.args), tt.parent)
		equal(t, tt.args+" below "+string(tt.parent), []string{string(tt.role), tt.id}, []string{string(role), id})
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

// TestReadUntrusted reads a file, and nothing that a link, a pipe, a folder or a device stands in the place of.
func TestReadUntrusted(t *testing.T) {
	n := newNode(t)
	n.Write("run/bundle/config.json", "{}", "etc/shadow", "secret")
	n.Link("run/linked/config.json", "/etc/shadow")
	n.Link("run/folder", "bundle")
	n.Link("run/up", "../../../../../..")
	n.fifo("run/pipe/config.json")
	must(t, os.MkdirAll(n.Path("run/dir/config.json"), 0o755))
	for path, want := range map[string]string{ // empty for an error
		"/run/bundle/config.json":          "{}",
		"/run/../run/bundle/./config.json": "{}",
		"/run/linked/config.json":          "",
		"/run/folder/config.json":          "",
		"/run/up/etc/shadow":               "",
		"/run/pipe/config.json":            "",
		"/run/dir/config.json":             "",
	} {
		got, err := readUntrusted(n.Root, path, 100)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	if got, err := readUntrusted("/", "/dev/zero", 100); err == nil {
		t.Errorf("/dev/zero: %d bytes", len(got))
	}
}

// TestPodsWithNamesOfTheRuntime has processes of pods and of users take names and arguments of the runtime's parts.
// None has a role, what their arguments name is not read, and what the runtime started itself has one.
func TestPodsWithNamesOfTheRuntime(t *testing.T) {
	n := newNode(t)
	n.Link(procFile(1, "ns/mnt"), "mnt:[1]")
	named := " create --bundle /run/bundle " + idB
	add := func(pid, ppid int, name, args, mounts string, status ...string) {
		n.process(pid, ppid, name, 'S', args)
		n.Link(procFile(pid, "ns/mnt"), mounts)
		n.Write(procFile(pid, "status"), "Name:\tx\nUid:\t0\t0\t0\t0\n"+strings.Join(status, ""))
	}
	const inPod = "NSpid:\t1000\t7\n"
	n.Write("run/bundle/config.json", `{"annotations": {"io.kubernetes.cri.container-type": "sandbox",
		"io.kubernetes.cri.sandbox-name": "web-1", "io.kubernetes.cri.sandbox-namespace": "shop"}}`)
	add(10, 1, "containerd", "containerd", "mnt:[1]")
	add(11, 1, "containerd-shim", "containerd-shim-runc-v2 -namespace k8s.io -id "+idA, "mnt:[1]")
	n.Link(procFile(11, "cwd"), "/run/containerd/"+taskDir+"/k8s.io/"+idA)
	add(12, 11, "runc", "runc"+named, "mnt:[1]")
	add(13, 12, "runc:[2:INIT]", "runc init", "mnt:[2]", inPod)
	add(14, 1, "runc", "runc"+named, "mnt:[2]") // of a runtime with mounts of its own: its bundle is another's
	add(20, 11, "runc", "runc"+named, "mnt:[2]", inPod)
	add(21, 11, "sh", "sh --root /r"+named, "mnt:[2]", inPod)
	for i, mine := range []string{inPod, ""} { // the second is of a pod in the host's pid namespace
		pid := 30 + 20*i
		add(pid, 11, "sleep", "sleep 1", "mnt:[2]", mine)
		add(pid+1, pid, "runc", "runc"+named, "mnt:[2]", mine)
		add(pid+2, pid+1, "runc:[2:INIT]", "runc x", "mnt:[2]", mine)
		add(pid+3, pid, "bridge", "/opt/cni/bin/bridge", "mnt:[2]", mine)
		n.Write(procFile(pid+3, "environ"), "CNI_COMMAND=ADD\x00CNI_CONTAINERID="+idB+"\x00")
		add(pid+4, pid, "containerd-shim", "containerd-shim-runc-v2 -id "+idB, "mnt:[2]", mine)
		add(pid+5, pid, "conmon", "conmon -c "+idB, "mnt:[2]", mine)
		add(pid+6, pid, "kubelet", "kubelet", "mnt:[2]", mine)
		add(pid+7, pid, "crio", "crio", "mnt:[2]", mine)
	}
	add(70, 1, "containerd", "containerd", "mnt:[3]", inPod)                           // its shim has ended
	for pid, uids := range map[int]string{75: "%d\t0", 76: "0\t%d", 77: "%d\t%[1]d"} { // of users
		add(pid, 1, []string{"kubelet", "containerd", "runc"}[pid-75], "runc"+named, "mnt:[1]")
		n.Write(procFile(pid, "status"), fmt.Sprintf("Uid:\t"+uids+"\t0\t0\n", os.Geteuid()+1))
	}
	add(80, 1, "containerd-shim", "containerd-shim-runc-v2 -namespace moby -id "+idB, "mnt:[1]")
	n.Link(procFile(80, "cwd"), "/run/containerd/"+taskDir+"/moby/"+idB)
	add(81, 80, "kubelet", "kubelet", "mnt:[2]") // a container is the kubelet's, as Rancher has it
	roles, serves := map[int]Role{}, map[int]string{}
	processes := n.processes()
	for _, p := range processes.Processes() {
		roles[p.PID], serves[p.PID] = p.Role, p.Serves.Pod
	}
	peer, err := processes.One(37)
	failed(t, "One", err, "")
	equal(t, "the role of a crio in a pod", Role(""), peer.Role)
	equal(t, "roles", map[int]Role{
		10: RoleRuntime, 11: RoleShim, 12: RoleOCI, 13: RoleOCI, 14: RoleOCI, 80: RoleShim, 81: RoleKubelet,
	}, roles)
	equal(t, "pods", map[int]string{10: "", 11: "", 12: "web-1", 13: "web-1", 14: "", 80: "", 81: ""}, serves)
}
